"""Zones in the tiers below GPU memory, and which chunks of a prompt a tier can serve."""
