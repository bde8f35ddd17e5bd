"""The manager's decisions on records, quotas, placement and eviction. There is no I/O and no clock in this package."""
