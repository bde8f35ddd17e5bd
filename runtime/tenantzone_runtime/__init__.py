"""The zone-aware vLLM runtime: the code that runs in an engine pod."""
