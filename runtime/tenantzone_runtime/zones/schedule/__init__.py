"""The scheduling step: which request is admitted, which runs, and which is preempted. Start with ``arbiter``."""
