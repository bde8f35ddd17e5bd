"""Measures how long the steps of a running engine take."""
