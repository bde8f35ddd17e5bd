"""Bounds and names the images, sounds and videos of requests."""
