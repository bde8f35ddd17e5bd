"""``doctor``: what is broken, from the CRDs to the engines' clocks, and what to do about it."""
