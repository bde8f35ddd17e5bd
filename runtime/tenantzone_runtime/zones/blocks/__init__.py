"""Which zone owns which KV-cache block, what may be lent, and whose cached blocks are evicted."""
