"""The engine's client of the KV-cache manager: its calls, the queries of requests, and removals."""
