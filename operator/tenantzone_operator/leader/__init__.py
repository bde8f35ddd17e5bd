"""Leader election, and the work that only the leader does."""
