"""The audit journal: zone events on disk, each record chained to the previous one by its hash."""
