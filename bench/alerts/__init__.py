"""Computes the alerts' expressions under simulated loads, from which the thresholds are derived."""
