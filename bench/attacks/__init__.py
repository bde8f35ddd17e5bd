"""What one tenant can learn of another, by attack: the same on stock vLLM and with zones, in one run."""
