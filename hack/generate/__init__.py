"""Generators of files that repeat what the code declares; a module for each file."""
