"""One pool's work, and that of all pools."""
