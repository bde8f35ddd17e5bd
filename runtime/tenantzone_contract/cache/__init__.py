"""The names, messages and values that engines, the operator and the KV-cache manager share."""
