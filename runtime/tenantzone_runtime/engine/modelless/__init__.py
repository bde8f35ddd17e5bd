"""vLLM schedulers that run without a model, for the replay and for benchmarks."""
