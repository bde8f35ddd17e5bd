"""A clock for the engine's tests that advances only when a test says so."""

from hack.harness.clock import UNIX_TIME, Clock

__all__ = ["UNIX_TIME", "Clock"]
