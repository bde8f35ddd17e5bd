"""Prints the progress of reading a journal."""

import sys
import time
from pathlib import Path
from typing import Final

from tenantzone_runtime.journal.files import journal_files
from tenantzone_runtime.journal.reading import Entry

_SECONDS: Final = 2.0
_MEGABYTE: Final = 1e6


class Progress:
    """Prints the progress of reading a journal to standard error, at most once in two seconds.

    Args:
        folder: the folder of the journal.

    Raises:
        OSError: the folder can't be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._total = sum(path.stat().st_size for path in journal_files(folder))
        self._next = time.monotonic() + _SECONDS

    def at(self, entry: Entry) -> None:
        """Print the progress, if the last line is two seconds old. ``entry`` is the record that was read last."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _SECONDS
        read, total = entry.bytes_read / _MEGABYTE, self._total / _MEGABYTE
        print(f"{self._folder}: {read:,.0f} of {total:,.0f} MB, record {entry.link.seq}", file=sys.stderr, flush=True)
