"""What would help a pool, by its engines' reports, and whether what was put into force did; pure."""
