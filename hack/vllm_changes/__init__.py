"""Compares the parts of a newer vLLM that zones touch, from both sources; nothing is run."""
