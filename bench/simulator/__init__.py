"""A simulator: the zone core and its arbiter under a simulated engine, in simulated time; the same for the same seed."""
