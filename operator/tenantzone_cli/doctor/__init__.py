"""Implements ``doctor``, which finds problems of an installation, from the CRDs to the engines' clocks."""
