"""Implements ``doctor``, which finds problems from the CRDs to the engines' clocks, and gives advice."""
