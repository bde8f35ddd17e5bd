"""The audit journal: what the zones did, on disk, each record chained by its hash to the one before."""
