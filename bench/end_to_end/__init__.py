"""The end-to-end cost of zones: vLLM's own serving benchmark against engines with and without zones."""
