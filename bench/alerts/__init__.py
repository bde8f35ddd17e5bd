"""The values of the alerts' expressions under simulated loads, which the thresholds are derived from."""
