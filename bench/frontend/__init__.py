"""Measures the frontend: what it adds to requests, and what hostile requests cost it."""
