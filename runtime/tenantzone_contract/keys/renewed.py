"""Caches a value made from files, such as those of a mounted Secret, and makes it again when the files change."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Renewed(Generic[T]):
    """A value made from files, made again when one of the files has changed. Thread-safe.

    While the files can't be used, for example because only one of two files was replaced, the previous value is used.

    Args:
        paths: the files.
        make: makes the value; raises ValueError (or a subclass, such as TlsError) while the files can't be used.
        about: the purpose of the files, for log lines.
    """

    def __init__(self, paths: Sequence[Path], make: Callable[[], T], *, about: str) -> None:
        self._paths = paths
        self._make = make
        self._about = about
        self._lock = threading.Lock()
        self._stamps: list[object] = []
        self._made: T | None = None
        self._complaint = ""

    def newest(self) -> T:
        """Returns the current value.

        Raises:
            ValueError: the files can't be used, and there is no previous value.
        """
        with self._lock:
            # Take the stamps before reading the files, so that the next call notices a change during the reading.
            stamps = [_stamp(path) for path in self._paths]
            if self._made is not None and stamps == self._stamps:
                return self._made
            try:
                made = self._make()
            except ValueError as error:
                if self._made is None:
                    raise
                # Do not store the stamps, because the next call must retry even if the files are unchanged. The error
                # may have another cause.
                self._complain(str(error))
                return self._made
            if self._made is not None:
                _log.info("%s: the renewed files are in use", self._about)
            self._made, self._stamps, self._complaint = made, stamps, ""
            return made

    def _complain(self, problem: str) -> None:
        if problem != self._complaint:
            _log.error("%s: %s; the previous files stay in use", self._about, problem)
        self._complaint = problem


def _stamp(path: Path) -> object:
    """Returns a stamp, cheap to read, that changes with the file's content; None if the file can't be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
