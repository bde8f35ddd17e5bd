"""vLLM's block pool and caches, with a zone as the owner of each block."""
