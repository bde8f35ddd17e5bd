"""The engine's report, and summaries of it."""
