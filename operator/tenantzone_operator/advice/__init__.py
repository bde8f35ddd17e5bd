"""What would help a pool, by its engines' reports, and whether what was applied did; pure."""
