"""Checks the promise of a token-time target in virtual time, on random loads that each have a flood."""
