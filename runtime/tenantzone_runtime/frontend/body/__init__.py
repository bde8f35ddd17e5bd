"""Reads, checks and bounds request bodies."""
