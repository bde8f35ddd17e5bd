"""The tiers below GPU memory, which extend vLLM's offloading connector."""
