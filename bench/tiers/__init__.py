"""Measures the tiers below the blocks: CPU memory, disk and shared storage."""
