"""Computes the next config of a pool's engines from the pool and its zones, in pure functions."""
