"""Reads events from files, and filters them, for example by block, zone, group or instance."""

import heapq
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import IO, Final

import msgspec

from tenantzone_contract.cache.cache_names import is_instance_of
from tenantzone_contract.line_files import older_files
from tenantzone_manager.events.record import KEY_DIGITS, LOST, Event, decode

LONGEST_LINE: Final = 8 * 2**20
"""Maximum length of a line in bytes. Every event is shorter."""
_KEY: Final = re.compile(r"(?:[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter for events. A selected event matches all fields that are set."""

    block: str = ""
    """Key of a block in hexadecimal digits, as returned by ``block_key``."""
    tenant: str = ""
    """Name of a tenant, which selects the instances of its zones in all pools."""
    pool: str = ""
    group: str = ""
    instance: str = ""
    caller: str = ""
    begin: float = float("-inf")
    """Start of the selected time, in Unix seconds, inclusive."""
    end: float = float("inf")
    """End of the selected time, in Unix seconds, exclusive."""

    def takes(self, event: Event) -> bool:
        """Returns whether an event matches. A ``lost`` event needs to match only the selected time."""
        if event.time >= self.end or max(event.time, event.until) < self.begin:
            return False
        if event.event == LOST:
            return True
        return (
            all(wanted in ("", name) for wanted, name in self._names(event))
            and (not self.tenant or is_instance_of(event.instance, self.tenant))
            and (not self.block or self.block in event.blocks)
        )

    def _names(self, event: Event) -> tuple[tuple[str, str], ...]:
        return (
            (self.pool, event.pool),
            (self.group, event.group),
            (self.instance, event.instance),
            (self.caller, event.caller),
        )


@dataclass(slots=True)
class Tally:
    """Counts of events and lines that were read."""

    read: int = 0
    """Number of events read."""
    skipped: int = 0
    """Number of lines that are not events, because a crash truncated them or another program wrote them."""
    lost: int = 0
    """Number of events that the manager dropped in the selected time."""
    files: list[str] = field(default_factory=list)


def block_key(text: str) -> str:
    """Returns a block's key in the form used in events.

    Args:
        text: hexadecimal digits of the complete key, or of a key in an event.

    Raises:
        ValueError: the text is not a key.
    """
    key = text.lower().removeprefix("0x")
    if not _KEY.fullmatch(key):
        raise ValueError(f"expected the key of a block in hexadecimal digits, got {text!r:.60}")
    return key[:KEY_DIGITS].ljust(KEY_DIGITS, "0")


def select(paths: Sequence[Path], selection: Selection, tally: Tally) -> Iterator[Event]:
    """Generates the selected events, oldest first. Events of one manager keep the order in which they were written.

    Args:
        paths: path of FILE for each manager. Rotated files are read, too. No file is read twice.
        selection: filter for events.
        tally: counts what is read.

    Raises:
        OSError: a file does not exist or can't be read.
    """
    with ExitStack() as stack:
        opened: set[tuple[int, int]] = set()
        managers = [_open(path, opened, tally, stack) for path in paths]
        for event in heapq.merge(*(_events(files, tally) for files in managers), key=attrgetter("time")):
            if selection.takes(event):
                tally.lost += event.events if event.event == LOST else 0
                yield event


def _open(path: Path, opened: set[tuple[int, int]], tally: Tally, stack: ExitStack) -> list[IO[bytes]]:
    """Open all files of a manager, oldest first. No file is missed or opened twice if files are rotated meanwhile."""
    files: list[IO[bytes]] = []
    for each in _newest_first(path):
        try:
            file = stack.enter_context(each.open("rb"))
        except FileNotFoundError:
            if each == path and not older_files(path):
                raise
            continue  # the file is being renamed
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) not in opened:
            opened.add((status.st_dev, status.st_ino))
            tally.files.append(str(each))
            files.insert(0, file)
    return files


def _newest_first(path: Path) -> Iterator[Path]:
    """Generates the paths FILE, FILE.1 and so on.

    The folder is read again for each file. No file is missed, because rotation only increases the number of a file.
    """
    yield path
    last = 0
    while following := [found for found in older_files(path) if found[0] > last]:
        last, each = following[0]
        yield each


def _events(files: Iterable[IO[bytes]], tally: Tally) -> Iterator[Event]:
    for file in files:
        for line in _lines(file):
            try:
                event = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                tally.skipped += 1
                continue
            tally.read += 1
            yield event


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Generates the lines of a file. A line that is too long is truncated, so it is not a valid event.

    Reading ends at a line without a newline, because the manager may still be writing this line, and the rest must not
    be read as another line.
    """
    while line := file.readline(LONGEST_LINE):
        yield line
        while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            return
