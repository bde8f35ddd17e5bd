"""vLLM's waiting requests, in one queue per zone."""
