"""The tokens of a step: shared by weight, and bounded by latency targets."""
