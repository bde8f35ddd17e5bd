"""Unpacks tar archives with any Python 3.11: the filters of ``tarfile`` itself, which do the like, came with 3.11.4."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO


class ArchiveError(Exception):
    """An archive holds something that is not unpacked; the message names it."""


def unpack(archive: IO[bytes], folder: Path, choose: Callable[[str], str] = lambda name: name) -> None:
    """Write an archive's files into a folder, and nothing outside of it.

    There are files and folders only, and so no link that a later file could be written through. Files can be executed
    or not, as in the archive; owners, times and other rights are not taken over.

    Args:
        archive: compressed or not, at its start.
        folder: made if need be; nobody else writes to it.
        choose: makes a member's path in the folder out of its name in the archive; none for what is not wanted.

    Raises:
        ArchiveError: what is wanted is a link or a device, or lies outside of the folder.
    """
    with tarfile.open(fileobj=archive) as members:
        for member in members:
            if path := choose(member.name):
                _write(members, member, folder / _inside(path))


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ArchiveError(f"the archive's {name} would be written outside of the folder")
    return path


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    content = members.extractfile(member) if member.isfile() else None
    if content is None:
        raise ArchiveError(f"the archive's {member.name} is neither a file nor a folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
