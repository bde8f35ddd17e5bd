"""Pathological requests, with which a tenant tries to take another tenant's cache or the server's time."""
