"""A zone: its spec, its quota, its queues and its counters."""
