"""Runs the operator for any time among lying engines and in a bad network, which must not affect honest pools."""
