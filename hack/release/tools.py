"""The tools that build wheels and list their contents: the locked packages of the images' build stage."""

from pathlib import Path

from hack.locked import environment
from hack.version import ROOT


def build_tools() -> Path:
    """The folder of its programs: python with setuptools, and cyclonedx-py.

    Raises:
        CommandFailed: the installation failed.
    """
    return environment("build-tools", ROOT / "requirements" / "build.txt") / "bin"
