"""Queues of waiting requests, one per zone, that replace vLLM's waiting queue."""
