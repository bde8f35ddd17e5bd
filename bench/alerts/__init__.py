"""What the alerts' expressions come to under simulated loads: where their thresholds are from."""
