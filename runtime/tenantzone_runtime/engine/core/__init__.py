"""The subclass of vLLM's scheduler, and the work between its steps. Start with ``scheduling``."""
