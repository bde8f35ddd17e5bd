"""The files of the embedded store: sets permissions, and detects that other files have replaced the opened files."""

import contextlib
import enum
import logging
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Seconds between two checks of the files."""
LOCK: Final = ".lock"
"""Suffix of the file that this process locks, so that no other process opens the store."""
_LOG: Final = ("-wal", "-shm")
"""Suffixes of the write-ahead log, and of the shared-memory file of SQLite's connections."""
_OF_OTHERS: Final = 0o077
"""Mode bits that give other users access to a file."""

_Identity = tuple[int, int]
"""Device and inode of a file."""


class InPlace(enum.Enum):
    """The kinds of files that can be found at the store's paths."""

    SAME = enum.auto()
    """The opened files are still at their paths."""
    NONE = enum.auto()
    """The store's file is missing."""
    OTHERS = enum.auto()
    """Other files have replaced the opened files, and another process may still be writing them."""
    OTHERS_AT_REST = enum.auto()
    """Other files have replaced the opened files, and have not changed between the last two checks."""


class SqliteFiles:
    """The files of one opened store.

    Args:
        path: path of the store's file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: dict[str, _Identity | None] = {}
        """Identities of the opened files, by suffix; None for files that did not exist."""
        self._last_seen: object = None

    def note(self) -> None:
        """Remember the identities of the files, to notice when other files replace them."""
        self._opened = self._identities()

    def look(self) -> InPlace:
        """Check the files; returns what is at their paths now."""
        last, self._last_seen = self._last_seen, self._state()
        found = self._identities()
        if found == self._opened:
            return InPlace.SAME
        if found[""] is None:
            return InPlace.NONE
        return InPlace.OTHERS_AT_REST if last == self._last_seen else InPlace.OTHERS

    def remove_left_log(self) -> None:
        """Remove the old log if only the store's file was replaced. SQLite would apply the old log to the new file."""
        found = self._identities()
        if found[""] == self._opened[""]:
            return
        for end in _LOG:
            if found[end] == self._opened[end]:
                sibling(self._path, end).unlink(missing_ok=True)

    def _identities(self) -> dict[str, _Identity | None]:
        return {end: _identity(sibling(self._path, end)) for end in ("", *_LOG, LOCK)}

    def _state(self) -> object:
        return [_state(sibling(self._path, end)) for end in ("", *_LOG)]


def sibling(path: Path, end: str) -> Path:
    """Returns the path of the store's file with ``end`` appended to its name."""
    return path.with_name(f"{path.name}{end}")


def make_private(path: Path, *, may_create: bool) -> None:
    """Deny other users access to the files of a store, because a restored or copied file may be readable by others.

    Args:
        path: path of the store's file.
        may_create: whether to create a missing file. SQLite creates its other files with the same mode.

    Raises:
        OSError: a file can't be created.
    """
    lock = sibling(path, LOCK)
    for each in (lock, path) if may_create else (lock,):
        each.touch(mode=0o600)
    open_to_others = []
    for each in (sibling(path, end) for end in ("", *_LOG, LOCK, "-reserve")):
        with contextlib.suppress(FileNotFoundError):
            mode = each.stat().st_mode
            if mode & _OF_OTHERS and not _tightened(each, mode):
                open_to_others.append(each.name)
    if open_to_others:
        _log.warning(
            "%s: other users can access %s, and this user may not change that; run chmod 600 as the owner",
            path,
            ", ".join(open_to_others),
        )


def _tightened(path: Path, mode: int) -> bool:
    try:
        path.chmod(mode & 0o7777 & ~_OF_OTHERS)
    except OSError:
        return False
    return True


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _state(path: Path) -> object:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
