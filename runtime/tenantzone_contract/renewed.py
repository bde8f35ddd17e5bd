"""Files that are renewed now and then, as those of a Secret are, and what they come to."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Renewed(Generic[T]):
    """What files come to, made anew whenever one of them has changed; any number of threads may ask.

    While they can't be used, as in the moment in which only one of two was replaced, it is what it was before.

    Args:
        paths: of the files.
        make: makes it of them; raises ValueError, such as a TlsError, while it can't.
        about: what the files are for, as the log says it.
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
        """What they come to now.

        Raises:
            ValueError: they can't be used, and never could.
        """
        with self._lock:
            # Looked at before they are read: what changes meanwhile is read again.
            stamps = [_stamp(path) for path in self._paths]
            if self._made is not None and stamps == self._stamps:
                return self._made
            try:
                made = self._make()
            except ValueError as error:
                if self._made is None:
                    raise
                # Tried again next time, also if they stay as they are: it may have been no fault of theirs.
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
    """Tells a file's content from the one before it, by what a look costs next to nothing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
