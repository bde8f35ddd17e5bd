"""What zones cost end to end: vLLM's own serving benchmark against engines with and without zones."""
