"""The ways to identify a request's tenant. A pool has exactly one, and nothing else is considered."""
