"""Loads made of others: denser, later, with bursts, several at once."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from tenantzone_replay.load import MAX_SECONDS, Asked, TraceError, content_id
from tenantzone_replay.made_up import Chats
from tenantzone_replay.readers import READERS, guess_format

MADE_UP: Final = "chats"
_MOST_RATE: Final = 1e6
_MOST_TIMES: Final = 1000
_APART: Final = 2**63
"""Ids of contents are smaller."""


@dataclass(frozen=True, slots=True)
class Burst:
    """A time in which each request comes several times, at the same moment, each with a text of its own."""

    begin: float
    """Seconds since the load began, as it is replayed."""
    seconds: float
    times: int


@dataclass(frozen=True, slots=True)
class Source:
    """A trace, and how it is replayed."""

    path: Path
    format: str = ""
    """Empty: by its first line."""
    rate: float = 1.0
    """How much denser it is than it was recorded."""
    shift: float = 0.0
    """Seconds that it begins after the others."""
    burst: Burst | None = None
    tenant: str = ""
    """All its requests are of this one; empty: as the trace or the rule says."""
    requests: int | None = None
    """The first so many; None: all."""
    chats: Chats | None = None
    """In place of a trace."""

    def load(self) -> Iterator[Asked]:
        """Its requests, in the order of arrival.

        Raises:
            TraceError: while they are read, if they can't be.
        """
        latest = self.shift
        for number, asked in enumerate(islice(self._read(), self.requests)):
            # What was written down in another order came no later than what is told before it.
            latest = max(latest, asked.arrival / self.rate + self.shift)
            if latest > MAX_SECONDS:
                days = f"{latest / 86_400:,.0f} days after the beginning, more than {MAX_SECONDS / 86_400:.0f}"
                raise TraceError(f"{self.path}: request {number + 1} comes {days}; are its times in another unit?")
            asked = replace(asked, arrival=latest, tenant=self.tenant or asked.tenant)
            yield asked
            yield from self._repeated(asked, number)

    def _read(self) -> Iterator[Asked]:
        if self.chats is not None:
            return self.chats.load()
        return READERS[self.format or guess_format(self.path)](self.path)

    def _repeated(self, asked: Asked, number: int) -> Iterator[Asked]:
        burst = self.burst
        if burst is None or not burst.begin <= asked.arrival < burst.begin + burst.seconds:
            return
        for copy in range(1, burst.times):
            own = content_id(f"{self.path}/{number}/{copy}")
            yield replace(asked, content=tuple(each ^ own for each in asked.content), conversation=own)


def mixed(sources: Iterable[Source]) -> Iterator[Asked]:
    """The requests of all sources in the order of arrival; those of one trace share no prefix with another's."""
    loads = [_apart(source.load(), number) for number, source in enumerate(sources)]
    return heapq.merge(*loads, key=lambda asked: asked.arrival)


def _apart(load: Iterator[Asked], number: int) -> Iterator[Asked]:
    if not number:
        return load
    return (replace(asked, content=tuple(number * _APART + each for each in asked.content)) for asked in load)


def parse_source(text: str) -> Source:
    """A source as users write it: ``FILE[,rate=2][,shift=600][,burst=START:SECONDS:TIMES][,tenant=NAME][,…]``.

    A file that is called ``chats`` need not be there: its requests are made up (``made_up``).

    Raises:
        TraceError: there is no such file, or an option can't be understood.
    """
    path, *options = text.split(",")
    source = Source(Path(path), chats=Chats() if path == MADE_UP else None)
    if source.chats is None and not source.path.exists():
        raise TraceError(f"{path}: there is no such file")
    for option in options:
        name, _, value = option.partition("=")
        try:
            source = _with_option(source, name, value)
        except ValueError as error:
            raise TraceError(f"{option!r} of {path} can't be understood: {error}") from None
    return source


def _with_option(source: Source, name: str, value: str) -> Source:
    if name == "format":
        if value not in READERS:
            raise ValueError(f"expected one of {', '.join(READERS)}")
        return replace(source, format=value)
    if name == "tenant" and value:
        return replace(source, tenant=value)
    if name == "requests" and int(value) > 0:
        return replace(source, requests=int(value))
    if name == "shift" and 0 <= float(value) <= MAX_SECONDS:
        return replace(source, shift=float(value))
    if name == "rate" and 0 < float(value) <= _MOST_RATE:
        return replace(source, rate=float(value))
    if name == "burst":
        begin, seconds, times = value.split(":")
        if not 1 <= int(times) <= _MOST_TIMES:
            raise ValueError(f"TIMES is from 1 to {_MOST_TIMES:,}")
        return replace(source, burst=Burst(float(begin), float(seconds), int(times)))
    if source.chats is not None:
        return replace(source, chats=source.chats.with_option(name, value))
    raise ValueError(
        "expected format=, rate= above 0, shift= of at least 0, burst=START:SECONDS:TIMES, tenant= or requests= above 0"
    )
