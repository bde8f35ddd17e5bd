"""A simulator: the real zone core under a fake engine, with simulated time, the same each time for the same seed."""
