"""What the engines of a pool should enforce: from its zones and its pool to the next config; pure."""
