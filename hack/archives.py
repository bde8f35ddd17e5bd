"""Unpacks tar archives with any Python 3.11: the filters of ``tarfile`` itself, which do the like, came with 3.11.4."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO


class ArchiveError(Exception):
    """An archive holds something that is not unpacked; the message names it."""


def unpack(archive: IO[bytes], folder: Path, choose: Callable[[str], str] = lambda name: name) -> None:
    """Extract an archive into a folder, and never outside of it.

    Only files and folders are extracted, so no later file can be written through a link. The executable bit is kept;
    owners, times and other permissions are not.

    Args:
        archive: compressed or not, at its start.
        folder: created if needed; no other process writes to it.
        choose: returns a member's path in the folder for its name in the archive; empty for members to skip.

    Raises:
        ArchiveError: a chosen member is a link or a device, or lies outside of the folder.
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
