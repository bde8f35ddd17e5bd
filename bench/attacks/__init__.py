"""Measures what a tenant can learn about another tenant, with the same attacks on stock vLLM and with zones."""
