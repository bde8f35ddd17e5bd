"""Reads request bodies, and checks their size, their shape and the cost of processing them."""
