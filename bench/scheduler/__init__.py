"""Measures the scheduler and the zone core: steps, lock holds, memory, and the hits of its policies."""
