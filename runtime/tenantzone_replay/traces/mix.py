"""Derives loads from traces: makes them denser, delays them, adds bursts, and mixes several traces."""

import heapq
import math
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from tenantzone_replay.traces.load import MAX_SECONDS, Asked, TraceError, content_id
from tenantzone_replay.traces.made_up import Chats
from tenantzone_replay.traces.readers import READERS, guess_format
from tenantzone_replay.traces.readers.seen import Seen

_Number = TypeVar("_Number", int, float)

MADE_UP: Final = "chats"
_MOST_RATE: Final = 1e6
_MOST_TIMES: Final = 1000
_APART: Final = 2**63
"""A number greater than every content id."""


@dataclass(frozen=True, slots=True)
class Burst:
    """A period in which each request is sent several times at once. Every copy has unique text."""

    begin: float
    """Start of the period, in seconds since the beginning of the replayed load."""
    seconds: float
    times: int


@dataclass(frozen=True, slots=True)
class Source:
    """A trace, with the options for replaying it."""

    path: Path
    format: str = ""
    """Format of the trace. If empty, the format is detected from the first line."""
    rate: float = 1.0
    """Factor by which the recorded request rate is multiplied."""
    shift: float = 0.0
    """Delay of the first request, in seconds."""
    burst: Burst | None = None
    tenant: str = ""
    """Tenant of all requests. If empty, the trace names the tenants, or the option ``--rule`` assigns them."""
    requests: int | None = None
    """Number of requests to replay. If None, all requests are replayed."""
    chats: Chats | None = None
    """Synthetic load that replaces the trace."""
    seen: Seen = field(default_factory=Seen, compare=False, repr=False)
    """State of the trace's files when they were first read."""

    def load(self) -> Iterator[Asked]:
        """Yields the requests in the order of arrival.

        Raises:
            TraceError: a request can't be read. Raised when the iterator reaches that request.
        """
        latest = self.shift
        for number, asked in enumerate(islice(self._read(), self.requests)):
            # Lines may be out of order. No request arrives before a request on an earlier line.
            latest = max(latest, asked.arrival / self.rate + self.shift)
            if latest > MAX_SECONDS:
                days = f"{latest / 86_400:,.0f} days after the beginning, more than {MAX_SECONDS / 86_400:.0f}"
                raise TraceError(f"{self.path}: request {number + 1} arrives {days}; check the unit of the times")
            asked = replace(asked, arrival=latest, tenant=self.tenant or asked.tenant)
            yield asked
            yield from self._repeated(asked, number)

    def _read(self) -> Iterator[Asked]:
        if self.chats is not None:
            return self.chats.load()
        return READERS[self.format or guess_format(self.path, self.seen)](self.path, self.seen)

    def _repeated(self, asked: Asked, number: int) -> Iterator[Asked]:
        burst = self.burst
        if burst is None or not burst.begin <= asked.arrival < burst.begin + burst.seconds:
            return
        for copy in range(1, burst.times):
            own = content_id(f"{self.path}/{number}/{copy}")
            yield replace(asked, content=tuple(each ^ own for each in asked.content), conversation=own)


def mixed(sources: Iterable[Source]) -> Iterator[Asked]:
    """Yields the requests of all sources in the order of arrival. Requests of different sources share no prefix."""
    loads = [_apart(source.load(), number) for number, source in enumerate(sources)]
    return heapq.merge(*loads, key=lambda asked: asked.arrival)


def _apart(load: Iterator[Asked], number: int) -> Iterator[Asked]:
    if not number:
        return load
    return (replace(asked, content=tuple(number * _APART + each for each in asked.content)) for asked in load)


def parse_source(text: str) -> Source:
    """Parses a source as users write it: ``FILE[,rate=2][,shift=600][,burst=START:SECONDS:TIMES][,tenant=NAME][,…]``.

    The file name ``chats`` stands for a synthetic load (module ``made_up``).

    Raises:
        TraceError: the file does not exist, or an option is invalid.
    """
    path, *options = text.split(",")
    source = Source(Path(path), chats=Chats() if path == MADE_UP else None)
    if source.chats is None:
        _check(source.path)
    for option in options:
        name, _, value = option.partition("=")
        try:
            source = _with_option(source, name, value)
        except ValueError as error:
            raise TraceError(f"the option {option!r} of {path} is invalid: {error}") from None
    return source


def _check(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise TraceError(f"{path}: the file does not exist") from None
    except OSError as error:
        raise TraceError(f"{str(path)[:100]}: {error.strerror}") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise TraceError(f"{path} is not a file or folder; save the trace to a file, because it is read several times")


def _with_option(source: Source, name: str, value: str) -> Source:
    if name not in _OPTIONS:
        if source.chats is not None:
            return replace(source, chats=source.chats.with_option(name, value))
        raise ValueError(f"expected {', '.join(f'{each}=' for each in _OPTIONS)}")
    understood, what = _OPTIONS[name]
    try:
        changed: dict[str, Any] = {name: understood(value)}
    except ValueError:
        raise ValueError(f"{name}= must be {what}") from None
    return replace(source, **changed)


def _within(number: _Number, least: float, most: float) -> _Number:
    if not least <= number <= most:
        raise ValueError
    return number


def _name(text: str, names: Container[str] | None = None) -> str:
    if not text or (names is not None and text not in names):
        raise ValueError
    return text


def _burst(text: str) -> Burst:
    begin, seconds, times = text.split(":")
    return Burst(
        _within(float(begin), 0, MAX_SECONDS),
        _within(float(seconds), 0, MAX_SECONDS),
        _within(int(times), 1, _MOST_TIMES),
    )


_OPTIONS: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "format": (lambda text: _name(text, READERS), f"one of {', '.join(READERS)}"),
    "rate": (
        lambda text: _within(float(text), math.ulp(0.0), _MOST_RATE),
        f"a number above 0, at most {_MOST_RATE:,.0f}",
    ),
    "shift": (lambda text: _within(float(text), 0, MAX_SECONDS), f"seconds from 0 to {MAX_SECONDS:,.0f}"),
    "burst": (
        _burst,
        f"START:SECONDS:TIMES, with seconds from 0 to {MAX_SECONDS:,.0f} and TIMES from 1 to {_MOST_TIMES:,}",
    ),
    "tenant": (_name, "a name"),
    "requests": (lambda text: _within(int(text), 1, sys.maxsize), f"a whole number from 1 to {sys.maxsize:,}"),
}
"""Parser and description of each option, by the name of the option."""
