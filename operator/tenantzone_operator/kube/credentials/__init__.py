"""The operator's credentials for the API server."""
