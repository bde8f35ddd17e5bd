"""The operator's identity at the API server."""
