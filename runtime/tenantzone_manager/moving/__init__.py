"""Background moves of blocks between storage types, depending on how often the blocks are read."""
