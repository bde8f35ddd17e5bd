"""Runs all attacks at once on two replicas of the operator, during restarts, and checks that no reservation changes."""
