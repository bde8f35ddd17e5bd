"""Limits the memory of images, sounds and videos of requests, and names them by tenant."""
