"""Blocks move between storage types by how often they are read, beside all that is asked of the manager."""
