"""Replays a recorded load in virtual time through vLLM's real scheduler, without and with zones, to compare them."""
