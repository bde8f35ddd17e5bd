"""Writes statuses and Events: first what somebody waits for, nothing twice, and nobody in another's way."""
