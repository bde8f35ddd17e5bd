"""Loads: read from traces, made up, or mixed."""
