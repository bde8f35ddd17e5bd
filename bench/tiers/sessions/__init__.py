"""Measures prefill tokens saved in multi-turn sessions with stock vLLM, its CPU offloading, and zones with tiers."""
