"""What a newer vLLM changes in what zones touch of it, read from both sources; nothing is run."""
