"""Forgery: sends thousands of forged requests, and tests whether one is attributed to another tenant.

The charges of the other tenants' zones are read before and after. Any change means that a request was attributed to
that tenant. Each request must be answered or its connection closed, no answer may reveal internals of the server, and
the server must keep running.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from bench.attacks.forge.forging import Forged, on_the_wire
from bench.attacks.forge.raw import Reply, send_raw

AT_ONCE = 16
BOUND_SECONDS = 120.0
"""Time after which a request counts as hanging; longer than a full queue of short answers takes."""
_ENOUGH_HUNG = 2 * AT_ONCE
"""Number of hanging requests after which the attack on an engine stops."""
_INTERNALS = re.compile(rb"Traceback \(most recent|File \\?\"/|site-packages|/[\w/.-]+\.(?:py|so)\b")
_OF_PYTHON = re.compile(
    rb'"message": ?"[^"]*(?:'
    rb"\b[a-z_]\w*(?:\.[a-z_]\w*)+\.\w+|\b\w+(?:Error|Exception)\b|\bobject\b.* (?:attribute|not )"
    rb"|(?:keyword|positional) argument)"
)
_FAILURE = re.compile(rb'"code": ?500\b')


class Target(Protocol):
    """An engine to attack."""

    @property
    def url(self) -> str: ...

    def metrics(self) -> str:
        """Returns a scrape of the admin port; empty if there is none."""
        ...


@dataclass(slots=True)
class Forgeries:
    """The results of forged requests."""

    statuses: Counter[int | None] = field(default_factory=Counter)
    """Number of answers by status; None for connections closed without an answer."""
    hung: list[bytes] = field(default_factory=list)
    """Requests that were neither answered nor closed."""
    revealing: list[tuple[bytes, Reply]] = field(default_factory=list)
    """Requests whose answers reveal internals of the server."""
    failed: list[tuple[bytes, Reply]] = field(default_factory=list)
    """Requests that the server answers with a server error."""
    moved: list[str] = field(default_factory=list)
    """Figures of other tenants' zones that have changed, with their values before and after."""
    slowest_health_seconds: float = 0.0
    is_alive: bool = False

    @property
    def sent(self) -> int:
        return self.statuses.total() + len(self.hung)


async def forge_at(
    target: Target,
    forged: Iterable[Forged],
    victims: Iterable[str],
    say: Callable[[int], None],
    bound_seconds: float = BOUND_SECONDS,
) -> Forgeries:
    """Send forged requests to an engine, and record the results.

    Args:
        target: the engine, which must have no other clients.
        forged: the requests.
        victims: tenants whose keys are in none of the requests.
        say: called with the number of requests sent.
        bound_seconds: the time after which a request counts as hanging if it is neither answered nor closed.
    """
    found = Forgeries()
    before = {tenant: figures_of(target.metrics(), tenant) for tenant in victims}
    address = urlsplit(target.url)
    ask = _Asking(address.hostname or "", address.port or 0, bound_seconds)
    done = asyncio.Event()
    health = asyncio.create_task(_watch_health(ask, found, done))
    waiting = iter(forged)
    await asyncio.gather(*(_send_all(ask, waiting, found, say) for _ in range(AT_ONCE)))
    done.set()
    await health
    for tenant, figures in before.items():
        found.moved += _difference(figures, figures_of(target.metrics(), tenant))
    return found


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    names = sorted(before.keys() | after.keys())
    return [f"{name}: {before.get(name)}, {after.get(name)}" for name in names if before.get(name) != after.get(name)]


def figures_of(metrics: str, tenant: str) -> dict[str, str]:
    """Returns the figures of a tenant's zone in a scrape that change only with its requests, by metric and labels.

    Leaves out times and block-seconds, which change by themselves.
    """
    lines = [line for line in metrics.splitlines() if f'tenant="{tenant}"' in line and "_seconds" not in line]
    return dict(line.rsplit(" ", 1) for line in lines)


def names_internals(reply: Reply) -> bool:
    """Returns whether an answer contains paths, a traceback or, if the server failed, the text of an exception."""
    if _INTERNALS.search(reply.body):
        return True
    return has_failed(reply) and _OF_PYTHON.search(reply.body) is not None


def has_failed(reply: Reply) -> bool:
    """Returns whether an answer reports a server error, by its status or within a stream."""
    return reply.status == 500 or _FAILURE.search(reply.body) is not None


@dataclass(frozen=True, slots=True)
class _Asking:
    host: str
    port: int
    bound_seconds: float

    async def __call__(self, forged: Forged) -> Reply | None:
        """Returns the reply; None if none came in time."""
        try:
            async with asyncio.timeout(self.bound_seconds):
                return await send_raw(self.host, self.port, forged.sent, leaves=forged.leaves)
        except TimeoutError:
            return None


async def _send_all(ask: _Asking, waiting: Iterator[Forged], found: Forgeries, say: Callable[[int], None]) -> None:
    for forged in waiting:
        if len(found.hung) >= _ENOUGH_HUNG:
            return
        reply = await ask(forged)
        if reply is None:
            found.hung.append(forged.sent)
        else:
            found.statuses[reply.status] += 1
            if names_internals(reply):
                found.revealing.append((forged.sent, reply))
            if has_failed(reply):
                found.failed.append((forged.sent, reply))
        say(found.sent)


async def _watch_health(ask: _Asking, found: Forgeries, done: asyncio.Event) -> None:
    """Request the server's health until all requests are done, and once more."""
    request = Forged(on_the_wire("GET", "/health", {}, None))
    is_over = False
    while not is_over:
        is_over = done.is_set()
        began = time.perf_counter()
        reply = await ask(request)
        found.slowest_health_seconds = max(found.slowest_health_seconds, time.perf_counter() - began)
        found.is_alive = reply is not None and reply.status == 200
        await asyncio.sleep(0.1)
