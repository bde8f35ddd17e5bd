"""Who of several replicas leads, and what only the leader does."""
