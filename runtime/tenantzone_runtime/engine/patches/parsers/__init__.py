"""Bounds the CPU time of vLLM's tool and reasoning parsers."""
