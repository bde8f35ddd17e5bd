"""Simulates the zone core and its arbiter in an engine in simulated time; equal seeds give equal runs."""
