"""``doctor``: finds what is broken, from the CRDs to the engines' clocks, and says what to do about it."""
