"""Has the KV-cache manager know what KVStorages, KVCacheGroups and ZonePools declare, and says what it reports."""
