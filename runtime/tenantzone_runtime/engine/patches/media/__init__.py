"""Limits the memory for images, sounds and videos of requests, and prefixes the names of media by tenant."""
