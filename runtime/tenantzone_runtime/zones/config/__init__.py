"""Turns a config into zones, and applies changes to zones that have blocks and requests."""
