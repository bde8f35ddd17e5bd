"""Measures a running engine."""
