"""Computes the next config of a pool's engines from its zones and the pool; pure."""
