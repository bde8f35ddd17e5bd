"""A config folder as the engine watches it."""

from pathlib import Path

from tenantzone_runtime.reload import ConfigSource

NOW = 1_000.0
"""Seconds. No clock is read."""


def source(folder: Path) -> ConfigSource:
    return ConfigSource(folder, now=lambda: NOW)


def generation_of(watched: ConfigSource) -> int:
    assert watched.config is not None
    return watched.config.generation
