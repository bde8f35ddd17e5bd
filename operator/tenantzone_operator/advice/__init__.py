"""Recommends changes to a pool from its engines' reports, and judges whether an applied change helped; pure."""
