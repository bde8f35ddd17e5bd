"""Reads loads from traces, generates synthetic loads, and mixes loads."""
