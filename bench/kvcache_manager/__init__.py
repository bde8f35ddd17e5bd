"""The cost of the KV-cache manager: queries, writes, memory, restarts; and a comparison of embedded stores."""
