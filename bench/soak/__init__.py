"""Runs the zone core for days in virtual time, to check that its memory does not grow with its history."""
