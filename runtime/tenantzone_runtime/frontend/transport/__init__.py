"""Client connections of the API server: their limits, their peers, and startup hooks of the process."""
