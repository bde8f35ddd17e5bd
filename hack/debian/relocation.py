"""Lets a program that was compiled to look into ``/usr/share`` run out of a folder of the user's."""

import os
from pathlib import Path

_WRAPPER = """#!/bin/sh
# The program looks for its own files below the current folder.
cd "{folder}" && exec "{program}" "$@"
"""


def relocated(program: Path, folder: Path, home: str) -> Path:
    """A program beside the given one that takes its own files from the folder. Made if it is not there.

    The compiled-in path loses its first slash and gets one at its end: as long as before, and relative. So a wrapper
    starts the copy in the folder, and paths on its command line must be absolute.

    Args:
        program: as it was packaged.
        folder: where the package was unpacked.
        home: the absolute path that is compiled in.
    """
    wrapper = program.with_name(f"{program.name}-here")
    if not wrapper.exists():
        copy = program.with_name(f"{program.name}-relative")
        _write(copy, program.read_bytes().replace(home.encode(), f"{home[1:]}/".encode()))
        _write(wrapper, _WRAPPER.format(folder=folder, program=copy).encode())
    return wrapper


def _write(program: Path, content: bytes) -> None:
    """Complete as soon as it is there, and in place of one that runs: another process may do the same at this time."""
    unfinished = program.with_name(f"{program.name}-unfinished-{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.chmod(0o755)
    unfinished.rename(program)
