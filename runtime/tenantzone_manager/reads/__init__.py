"""Finds the blocks that engines may read."""
