"""Reads engines' reports, which any pod may have sent, and trusts them as little as possible."""
