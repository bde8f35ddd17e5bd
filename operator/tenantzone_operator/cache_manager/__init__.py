"""Registers what KVStorages, KVCacheGroups and ZonePools declare with the KV-cache manager, and reports their state."""
