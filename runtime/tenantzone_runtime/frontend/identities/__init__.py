"""The ways to identify a request's tenant. Each pool uses exactly one way, without a fallback."""
