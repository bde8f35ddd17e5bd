"""Compiles and runs the grammars of structured answers, with fairness among tenants."""
