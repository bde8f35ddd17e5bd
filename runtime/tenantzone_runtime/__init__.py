"""The zone-aware vLLM runtime: what runs in an engine pod."""
