"""Measures a quiet tenant next to a noisy neighbour with stock vLLM, other solutions, and zones, in one run."""
