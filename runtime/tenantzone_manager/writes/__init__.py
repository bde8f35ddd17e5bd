"""Plans, reserves and finishes the writes of blocks."""
