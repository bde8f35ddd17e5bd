"""The ways to identify a request's tenant. A pool uses exactly one of them, without a fallback."""
