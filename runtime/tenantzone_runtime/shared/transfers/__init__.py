"""Transfers of chunks between an engine's memory and shared storages."""
