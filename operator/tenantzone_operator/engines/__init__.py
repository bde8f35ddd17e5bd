"""Reads the engines' reports, and believes no more of them than it must."""
