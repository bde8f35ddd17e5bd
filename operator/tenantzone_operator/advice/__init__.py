"""Recommends changes to a pool's settings from engines' reports, and judges whether an applied change helped."""
