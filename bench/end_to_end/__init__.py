"""Measures the end-to-end cost of zones, with vLLM's own serving benchmark on engines with and without zones."""
