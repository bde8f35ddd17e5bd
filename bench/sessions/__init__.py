"""Prefill tokens that multi-turn sessions save: stock vLLM, stock offloading to CPU memory, and zones with tiers."""
