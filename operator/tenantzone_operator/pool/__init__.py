"""Reconciles pools: plans and publishes their configs, watches their engines, and writes statuses."""
