"""Two replicas of the operator under all attacks at once, while they and engines restart: no reservation changes."""
