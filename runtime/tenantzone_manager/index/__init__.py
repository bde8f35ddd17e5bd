"""The index: records in a key-value store, embedded or Redis, with locks and a search cache."""
