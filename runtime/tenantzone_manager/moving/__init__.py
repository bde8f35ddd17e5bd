"""Moves of blocks between storage types by how often they are read, in the background."""
