"""Pure functions that compute the next config of a pool's engines from the pool and its zones."""
