"""The files of the embedded store: who may read them, and whether they are still those that were opened."""

import contextlib
import enum
import logging
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Between two looks at the files."""
_ENDS: Final = ("", "-wal", "-shm")
"""Of the names of the files of a store: its own, its log's, and the one that SQLite's connections share."""
_OF_OTHERS: Final = 0o077
"""The mode bits that let other users use a file."""

_Identity = tuple[int, int]
"""Device and inode."""


class InPlace(enum.Enum):
    """What is where the store's files were opened."""

    SAME = enum.auto()
    """The files that were opened."""
    NONE = enum.auto()
    """No store."""
    OTHERS = enum.auto()
    """Other files, which somebody may still write."""
    OTHERS_AT_REST = enum.auto()
    """Other files, which have not changed between the last two looks."""


class SqliteFiles:
    """The files that one opened store has.

    Args:
        path: of the store's file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: list[_Identity | None] = []
        self._last_seen: object = None

    def note(self) -> None:
        """Remember the files that are there now as those that were opened."""
        self._opened = self._identities()

    def look(self) -> InPlace:
        """Returns what is there now."""
        last, self._last_seen = self._last_seen, self._state()
        found = self._identities()
        if found == self._opened:
            return InPlace.SAME
        if found[0] is None:
            return InPlace.NONE
        return InPlace.OTHERS_AT_REST if last == self._last_seen else InPlace.OTHERS

    def remove_left_log(self) -> None:
        """Remove the log of a store that was replaced alone: SQLite would apply it to the store that is there now."""
        found = self._identities()
        if found[0] == self._opened[0]:
            return
        for path, there, opened in zip(self._paths(), found, self._opened, strict=True):
            if there is not None and there == opened:
                path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        return [beside(self._path, end) for end in _ENDS]

    def _identities(self) -> list[_Identity | None]:
        return [_identity(path) for path in self._paths()]

    def _state(self) -> object:
        return [_state(path) for path in self._paths()]


def beside(path: Path, end: str) -> Path:
    """The path of a file beside the store's, whose name goes on with ``end``."""
    return path.with_name(f"{path.name}{end}")


def make_private(path: Path, *, may_create: bool) -> None:
    """Let no other user read or write the files of a store. Files of earlier releases let others read them.

    Args:
        path: of the store's file.
        may_create: whether to make the file if it is not there. SQLite gives the files beside it the same mode.

    Raises:
        OSError: a file can't be made.
    """
    lock = beside(path, ".lock")
    for each in (lock, path) if may_create else (lock,):
        each.touch(mode=0o600)
    open_to_others = []
    for each in (path, *(beside(path, end) for end in ("-wal", "-shm", ".lock", "-reserve"))):
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
