"""A simulator: the zone core and its arbiter under a simulated engine, in simulated time; equal for equal seeds."""
