"""The story of a fleet: engines of one pool that share their tenants' caches through a KV-cache manager."""
