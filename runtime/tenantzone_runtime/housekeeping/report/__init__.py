"""Makes the engine's report and its map of blocks."""
