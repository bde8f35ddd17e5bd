"""The subclass of vLLM's scheduler, and the work between the scheduler's steps. Start reading at ``scheduling``."""
