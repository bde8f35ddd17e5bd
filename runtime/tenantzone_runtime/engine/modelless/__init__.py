"""Schedulers without a model, for the replay and for benchmarks."""
