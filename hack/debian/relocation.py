"""Lets a program run out of a folder of the user's: one that looks into ``/usr/share``, or for its libraries."""

import os
from pathlib import Path

_WRAPPER = """#!/bin/sh
# The program looks for its own files below the current folder.
cd "{folder}" && exec "{program}" "$@"
"""

_WITH_LIBRARIES = """#!/bin/sh
# Its libraries are those of its own packages, and for the rest those of the machine.
LD_LIBRARY_PATH="$(echo "{folder}"/usr/lib/*-linux-gnu)" exec "{program}" "$@"
"""


def relocated(program: Path, folder: Path, home: str) -> Path:
    """Returns a copy of a program, in the same folder, that reads its own files from ``folder``; makes it if missing.

    The compiled-in path loses its first slash and gets one at its end: the length stays the same, and the path becomes
    relative. So a wrapper starts the copy in the folder, and paths on its command line must be absolute.

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


def with_libraries(program: Path, folder: Path) -> Path:
    """Returns a wrapper, next to the program, that lets it find the libraries unpacked into the folder."""
    wrapper = program.with_name(f"{program.name}-here")
    if not wrapper.exists():
        _write(wrapper, _WITH_LIBRARIES.format(folder=folder, program=program).encode())
    return wrapper


def _write(program: Path, content: bytes) -> None:
    """Write a program atomically, even if it is running: another process may do the same at the same time."""
    unfinished = program.with_name(f"{program.name}-unfinished-{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.chmod(0o755)
    unfinished.rename(program)
