"""Compares the replay with real engines, and measures what its advice does."""
