"""Reads and writes chunks in the storages that engines share."""
