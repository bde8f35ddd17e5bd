"""The client of the KV-cache manager."""
