"""The engine's client of the KV-cache manager: calls, queries for requests, and removals."""
