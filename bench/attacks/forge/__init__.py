"""Forged requests, with which a client tries to act as another tenant."""
