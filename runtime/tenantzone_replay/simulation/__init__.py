"""Serves a load in virtual time."""
