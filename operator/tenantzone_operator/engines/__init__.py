"""Reads the engines' reports, and trusts them no more than necessary."""
