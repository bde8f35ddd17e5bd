"""The tiers below GPU memory, behind vLLM's offloading connector."""
