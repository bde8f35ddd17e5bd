"""Compares, without I/O, the reservations that engines enforce with the reservations that owners were granted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Held = Mapping[str, int | str]
"""Reservations of a config, in blocks or as a percentage, by zone."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A time in which an engine enforced a reservation for a zone that its owner was not granted.

    Args:
        held: the reservation that the engine enforced; None if the engine did not know the zone.
        granted: the permitted reservations: several while the owner changes the zone; none for an unknown zone.
        since: the start, in seconds of a monotonic clock.
        until: the end, in seconds of the same clock.
    """

    engine: str
    zone: str
    held: int | str | None
    granted: tuple[int | str, ...]
    since: float
    until: float

    def __str__(self) -> str:
        granted = " or ".join(map(str, self.granted)) or "nothing"
        return f"{self.engine} held {self.held} for {self.zone} for {self.until - self.since:.1f} s, granted: {granted}"


@dataclass(slots=True)
class _Open:
    held: int | str | None
    granted: tuple[int | str, ...]
    since: float


@dataclass(slots=True)
class _Pool:
    granted: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    engines: dict[str, Held] = field(default_factory=dict)


class Reservations:
    """Compares the reservations that each engine enforces with the reservations that owners were granted.

    An engine may enforce a new value as soon as the owner requests it, and the old value until the owner reads that the
    new value is `Programmed`.
    """

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}
        self._pool_of: dict[str, str] = {}
        self._open: dict[tuple[str, str], _Open] = {}
        """Breaches that have not ended, by engine and zone."""
        self.ended: list[Breach] = []
        self.comparisons = 0
        """Number of reservations compared so far."""

    def grant(self, zone: str, pool: str, reserved: int | str) -> None:
        """Record the reservation that a zone was granted before its pool has engines."""
        self._pools.setdefault(pool, _Pool()).granted[zone] = (reserved,)
        self._pool_of[zone] = pool

    def begin(self) -> None:
        """Discard earlier breaches, because engines start before all of their zones are granted."""
        self.ended.clear()
        self.comparisons = 0

    def begin_change(self, zone: str, reserved: int | str) -> None:
        """Record that an owner requests a new value."""
        granted = self._pools[self._pool_of[zone]].granted
        granted[zone] = (*granted[zone], reserved)

    def end_change(self, zone: str, reserved: int | str, now: float) -> None:
        """Record that the owner has read that the new value is `Programmed`."""
        pool = self._pools[self._pool_of[zone]]
        pool.granted[zone] = (reserved,)
        for engine, held in pool.engines.items():
            self._compare(engine, zone, held.get(zone), pool.granted[zone], now)

    def apply(self, engine: str, pool: str, held: Held, now: float) -> None:
        """Record the reservations that an engine enforces from now on."""
        found = self._pools.setdefault(pool, _Pool())
        before = found.engines.get(engine, {})
        found.engines[engine] = held
        for zone in found.granted.keys() | held.keys() | before.keys():
            self._compare(engine, zone, held.get(zone), found.granted.get(zone, ()), now)

    def stop(self, engine: str, pool: str, now: float) -> None:
        """Record that an engine has stopped."""
        self._pools[pool].engines.pop(engine, None)
        for key in [key for key in self._open if key[0] == engine]:
            self._end(key, now)

    def is_granted(self, pool: str, held: Held) -> bool:
        """Returns whether a config has exactly the reservations that owners were granted."""
        granted = self._pools[pool].granted
        return held.keys() == granted.keys() and all(held[zone] in granted[zone] for zone in granted)

    def breaches(self, now: float) -> Iterator[Breach]:
        """Yields all breaches, including those that have not ended yet."""
        yield from self.ended
        for (engine, zone), each in self._open.items():
            yield Breach(engine, zone, each.held, each.granted, each.since, now)

    def _compare(
        self, engine: str, zone: str, held: int | str | None, granted: tuple[int | str, ...], now: float
    ) -> None:
        self.comparisons += 1
        key = engine, zone
        if (held in granted) if granted else held is None:
            self._end(key, now)
        elif key not in self._open:
            self._open[key] = _Open(held, granted, now)

    def _end(self, key: tuple[str, str], now: float) -> None:
        each = self._open.pop(key, None)
        if each is not None:
            self.ended.append(Breach(*key, each.held, each.granted, each.since, now))


class Leaderless:
    """Records the times in which no operator reported to be the leader."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.times: list[tuple[float, float]] = []

    def look(self, is_led: bool, now: float) -> None:
        """Record whether an operator leads now."""
        if is_led and self._since is not None:
            self.times.append((self._since, now))
            self._since = None
        elif not is_led and self._since is None:
            self._since = now

    def seconds(self, since: float, until: float) -> float:
        """Returns the number of seconds between two times in which no operator led."""
        times = self.times if self._since is None else [*self.times, (self._since, until)]
        return sum(max(0.0, min(until, end) - max(since, begin)) for begin, end in times)
