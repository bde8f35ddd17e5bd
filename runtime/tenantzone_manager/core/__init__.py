"""What the manager decides: records, quotas, placement, eviction. No I/O, no clock: times are Unix seconds, given."""
