"""Compiles and runs the grammars of structured outputs, with fairness among tenants."""
