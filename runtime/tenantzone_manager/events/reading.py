"""Reads events again: who wrote and who read a block, and what went on in a zone, a group or an instance."""

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

from tenantzone_contract.cache_names import is_instance_of
from tenantzone_manager.events.files import older_files
from tenantzone_manager.events.record import KEY_DIGITS, LOST, Event, decode

LONGEST_LINE: Final = 8 * 2**20
"""Bytes; no event is as long."""
_KEY: Final = re.compile(r"(?:[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events are asked for: those that fit all that is given here."""

    block: str = ""
    """A key in hexadecimal digits, as ``block_key`` makes it."""
    tenant: str = ""
    """Whose zone's instances, in whatever pool."""
    pool: str = ""
    group: str = ""
    instance: str = ""
    caller: str = ""
    begin: float = float("-inf")
    """Unix time; what happened then is in it."""
    end: float = float("inf")
    """... and is not in it."""

    def takes(self, event: Event) -> bool:
        """Whether an event is one of these. Where events were lost is told whatever is asked for, but the time."""
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
    """What was met while events were read."""

    read: int = 0
    """Events."""
    skipped: int = 0
    """Lines that are no event: cut off by a crash, or somebody else's."""
    lost: int = 0
    """Events that the manager had to drop, in the time that is asked for."""
    files: list[str] = field(default_factory=list)


def block_key(text: str) -> str:
    """A block's key as events have it, from all of its hexadecimal digits, or from as many as an event has.

    Raises:
        ValueError: it is none.
    """
    key = text.lower().removeprefix("0x")
    if not _KEY.fullmatch(key):
        raise ValueError(f"{text!r} is no key of a block: give its bytes in hexadecimal digits")
    return key[:KEY_DIGITS].ljust(KEY_DIGITS, "0")


def select(paths: Sequence[Path], selection: Selection, tally: Tally) -> Iterator[Event]:
    """The events that are asked for, the oldest first; those of one manager in the order in which it wrote them.

    Args:
        paths: the FILE of each manager; older files beside it are read with it. None is read twice.
        selection: which events.
        tally: is counted up meanwhile.

    Raises:
        OSError: a file is not there, or can't be read.
    """
    with ExitStack() as stack:
        opened: set[tuple[int, int]] = set()
        managers = [_open(path, opened, tally, stack) for path in paths]
        for event in heapq.merge(*(_events(files, tally) for files in managers), key=attrgetter("time")):
            if selection.takes(event):
                tally.lost += event.events if event.event == LOST else 0
                yield event


def _open(path: Path, opened: set[tuple[int, int]], tally: Tally, stack: ExitStack) -> list[IO[bytes]]:
    """All files of a manager, the oldest first. None is missed, and none there twice, if they are rotated meanwhile."""
    files: list[IO[bytes]] = []
    for each in _newest_first(path):
        try:
            file = stack.enter_context(each.open("rb"))
        except FileNotFoundError:
            if each == path and not older_files(path):
                raise
            continue  # it is being named anew
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) not in opened:
            opened.add((status.st_dev, status.st_ino))
            tally.files.append(str(each))
            files.insert(0, file)
    return files


def _newest_first(path: Path) -> Iterator[Path]:
    """FILE, FILE.1 and so on. The folder is read again for each: numbers grow, so what is still to come is there."""
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
    """Lines, of those that are too long the first part only, which is no event.

    What does not end with a newline is the last one: if its end is written meanwhile, that is no line.
    """
    while line := file.readline(LONGEST_LINE):
        yield line
        while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            return
