"""Runs the demo's flood with each kind of model and feature; counts kept cached tokens and tokens equal to stock."""
