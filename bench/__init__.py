"""Benchmarks; each is a module that prints a table."""
