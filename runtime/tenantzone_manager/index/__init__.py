"""Where records are kept: a key-value store, embedded or Redis, behind one index with locks and a search cache."""
