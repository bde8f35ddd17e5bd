"""Makes the engine's report, its figures for scrapes, and its block map."""
