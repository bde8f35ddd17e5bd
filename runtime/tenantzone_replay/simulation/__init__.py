"""Simulates an engine that serves a load in virtual time."""
