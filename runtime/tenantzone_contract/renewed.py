"""Caches a value made from files that are replaced from time to time, such as those of a Secret."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Renewed(Generic[T]):
    """A value made from files, made again when one of them has changed; any number of threads may use it.

    While the files can't be used, for example because only one of two was replaced, the previous value stays.

    Args:
        paths: the files.
        make: makes the value; raises ValueError, such as a TlsError, while the files can't be used.
        about: what the files are for, for the log.
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
            ValueError: the files can't be used, and never could.
        """
        with self._lock:
            # Take the stamps before reading: a change in the meantime is then read again.
            stamps = [_stamp(path) for path in self._paths]
            if self._made is not None and stamps == self._stamps:
                return self._made
            try:
                made = self._make()
            except ValueError as error:
                if self._made is None:
                    raise
                # Retry the next time even if the files are unchanged: the failure may not be their fault.
                self._complain(str(error))
                return self._made
            if self._made is not None:
                _log.info("%s: what has been renewed is in use", self._about)
            self._made, self._stamps, self._complaint = made, stamps, ""
            return made

    def _complain(self, problem: str) -> None:
        if problem != self._complaint:
            _log.error("%s: %s; what was there before stays in use", self._about, problem)
        self._complaint = problem


def _stamp(path: Path) -> object:
    """Returns a stamp that changes with a file's content and costs next to nothing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
