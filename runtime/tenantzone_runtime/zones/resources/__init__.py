"""Seats, adapter slots and encoder room: the resources besides blocks and tokens that requests compete for."""
