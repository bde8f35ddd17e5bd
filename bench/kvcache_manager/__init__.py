"""What the KV-cache manager costs: queries, writes, memory, restarts; and on which embedded store it should stand."""
