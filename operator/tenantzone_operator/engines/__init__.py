"""What reads the engines' reports, and believes no more than it must."""
