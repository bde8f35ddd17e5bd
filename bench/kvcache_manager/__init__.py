"""Measures the cost of the KV-cache manager (queries, writes, memory, restarts), and its eviction policies."""
