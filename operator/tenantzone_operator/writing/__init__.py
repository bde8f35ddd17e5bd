"""Writes statuses and Events. Statuses that users wait for come first, and no write delays the others."""
