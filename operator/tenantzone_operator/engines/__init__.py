"""Reads engines' reports, and trusts them as little as possible, because any pod may have sent them."""
