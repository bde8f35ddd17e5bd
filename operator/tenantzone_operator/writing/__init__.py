"""Writes statuses and Events. Statuses that users wait for come first, and a slow write does not delay others."""
