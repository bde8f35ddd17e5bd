"""The files of the embedded store: their permissions, and whether they are still the opened ones."""

import contextlib
import enum
import logging
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Seconds between two checks of the files."""
LOCK: Final = ".lock"
"""The ending of the name of the file that this process locks, so that no other one opens the store."""
_LOG: Final = ("-wal", "-shm")
"""The endings of the names of the log, and of the file that SQLite's connections share."""
_OF_OTHERS: Final = 0o077
"""The mode bits that let other users use a file."""

_Identity = tuple[int, int]
"""Device and inode."""


class InPlace(enum.Enum):
    """The state of the paths of the store's files."""

    SAME = enum.auto()
    """The files that were opened."""
    NONE = enum.auto()
    """No store."""
    OTHERS = enum.auto()
    """Other files, which may still be written."""
    OTHERS_AT_REST = enum.auto()
    """Other files, which have not changed between the last two checks."""


class SqliteFiles:
    """The files of one opened store.

    Args:
        path: path of the store's file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: dict[str, _Identity | None] = {}
        """By ending."""
        self._last_seen: object = None

    def note(self) -> None:
        """Remember the current files as the opened ones."""
        self._opened = self._identities()

    def look(self) -> InPlace:
        """Check the files, and return their state."""
        last, self._last_seen = self._last_seen, self._state()
        found = self._identities()
        if found == self._opened:
            return InPlace.SAME
        if found[""] is None:
            return InPlace.NONE
        return InPlace.OTHERS_AT_REST if last == self._last_seen else InPlace.OTHERS

    def remove_left_log(self) -> None:
        """Remove the old log if only the store's file was replaced: SQLite would apply the log to the new file."""
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
    """Deny other users access to the files of a store. Files of earlier releases allowed others to read them.

    Args:
        path: path of the store's file.
        may_create: whether to create a missing file. SQLite gives its other files the same mode.

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
            "%s: other users may use %s, and this user may not change that: chmod 600 as their owner",
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
