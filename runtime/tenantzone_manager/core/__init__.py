"""The manager's decisions: records, quotas, placement, eviction. No I/O, no clock: callers pass Unix times."""
