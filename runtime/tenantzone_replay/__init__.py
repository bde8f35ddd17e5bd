"""Replays a recorded load in virtual time through vLLM's real scheduler, stock and with zones, to show their effect."""
