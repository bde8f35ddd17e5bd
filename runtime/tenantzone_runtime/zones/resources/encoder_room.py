"""Room in the encoder: which zone's images, sounds and videos are encoded next, and which requests are preempted.

A step can compute a limited number of embeddings, and an encoding stays in the encoder cache until its tokens are
computed. A zone waits for room if one of its requests lacks only an encoding to begin or to continue. Before each step,
the waiting zones are sorted: *entitled* zones (zones with seats of their own) come before the others, and among equals
the zone that has waited for the most steps comes first. The room that a zone needs is kept for it, so that no later
zone, and no zone that does not wait, takes it. A zone that has encoded something goes to the end of the line.

After the ``lending.grace`` of an entitled zone, running requests of zones without seats of their own are preempted if
that makes enough room.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Generic

from tenantzone_runtime.zones.audit.events import PreemptionReason
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.engine import Encoding, Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS

_Held = tuple[int, Set[W]]
"""An encoding: the number of its embeddings, and the requests that use it."""


@dataclass(frozen=True, slots=True)
class _Waiter(Generic[W]):
    """A zone that waits for room."""

    work: W
    """The first of the zone's requests that need an encoding."""
    needed: Encoding
    step: int
    """Number of the step in which the zone began to wait for this encoding."""
    since: float
    """Time of that step, in seconds of the monotonic clock."""
    is_entitled: bool


class EncoderRoom(Generic[W]):
    """The room in the encoder of one engine.

    Args:
        engine: the engine.
        ledger: provides the current time.
        is_entitled: returns whether a zone has seats of its own.
        could_begin: returns the first waiting request of a zone, if it could begin now with room in the encoder.
        preempt: preempts a running request, for a reason and for the benefit of a zone.
    """

    def __init__(
        self,
        engine: Engine[W],
        ledger: Ledger,
        is_entitled: Callable[[Zone], bool],
        could_begin: Callable[[Zone], W | None],
        preempt: Callable[[W, PreemptionReason, Zone | None], None],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._is_entitled = is_entitled
        self._could_begin = could_begin
        self._preempt = preempt
        self._step = 0
        self._line: dict[Zone, _Waiter[W]] = {}
        self._kept: dict[Zone, Encoding] = {}
        """Room kept for zones in this step, in the order of the line."""
        self._turned_away: list[Zone] = []
        """Zones of waiting requests that were denied room during this step."""
        self.waiting: frozenset[Zone] = frozenset()
        """Zones of waiting requests for which too little room was left at the start of this step."""

    # Queries

    def may_have(self, zone: Zone | None, needed: Encoding, left: Encoding) -> bool:
        """Returns whether a request of a zone may have an encoding in this step.

        Args:
            zone: zone of the request; None if it has none.
            needed: room that the request needs, including the room that it has already taken in this step.
            left: room that is left in the encoder in this step.
        """
        cache, compute = needed.cache, needed.compute
        for other, kept in self._kept.items():
            if other is zone:
                break
            cache += kept.cache
            compute += kept.compute
        # A cached encoding needs no computation, so it does not matter how much computation is kept for others.
        return cache <= left.cache and (not needed.compute or compute <= left.compute)

    # Steps

    def begin_step(self) -> None:
        """Decide for which zones room is kept in this step, and preempt requests to make room."""
        self._step += 1
        self._turned_away.clear()
        if not self._line and not self._engine.media_zones:
            return
        self._line = {waiter.work.zone: waiter for waiter in self._waiters()}
        if self._line:
            self._make_free()
            self._keep()
        else:
            self._kept, self.waiting = {}, frozenset()

    def has_taken(self, zone: Zone) -> None:
        """Note that a request of a zone has taken its room, so that the zone goes to the end of the line."""
        self._line.pop(zone, None)
        self._kept.pop(zone, None)

    def turned_away(self, zone: Zone) -> None:
        """Note that a zone's next waiting request was denied room in this step."""
        self._turned_away.append(zone)

    def let_go(self) -> list[Zone]:
        """Release all room that is kept in this step.

        Returns:
            The zones that were denied room; empty if no room was kept.
        """
        turned_away = self._turned_away if self._kept else []
        self._kept, self._turned_away = {}, []
        return turned_away

    # The line

    def _waiters(self) -> list[_Waiter[W]]:
        """Returns the waiting zones in queue order. A zone keeps its position while it waits for the same encoding."""
        wanted: dict[Zone, tuple[W, Encoding]] = {}
        for work, needed in self._wanted():
            wanted.setdefault(work.zone, (work, needed))
        waiters = [self._waiter(work, needed) for work, needed in wanted.values()]
        return sorted(waiters, key=lambda waiter: (not waiter.is_entitled, waiter.step))

    def _wanted(self) -> Iterator[tuple[W, Encoding]]:
        """Generate the requests that need an encoding now, each with the encoding; running requests come first."""
        engine, zones = self._engine, self._engine.media_zones
        begun = (work for work in chain(engine.running, engine.loading) if work.zone in zones)
        could_begin = (work for zone in zones if (work := self._could_begin(zone)) is not None)
        for work in chain(begun, could_begin):
            needed = engine.next_encoding(work)
            if needed is not None:
                yield work, needed

    def _waiter(self, work: W, needed: Encoding) -> _Waiter[W]:
        known = self._line.get(work.zone)
        is_entitled = self._is_entitled(work.zone)
        if known is not None and known.work is work and known.needed == needed and known.is_entitled == is_entitled:
            return known
        return _Waiter(work, needed, self._step, self._ledger.now, is_entitled)

    def _keep(self) -> None:
        """Keep room for the zones in the line, up to and including the first one for which too little is left."""
        self._kept = {}
        left = self._engine.encoder_room
        finding: set[Zone] = set()
        cache, compute = left.cache, left.compute
        for zone, waiter in self._line.items():
            cache, compute = cache - waiter.needed.cache, compute - waiter.needed.compute
            self._kept[zone] = waiter.needed
            if cache < 0 or compute < 0:
                break
            finding.add(zone)
        self.waiting = frozenset(
            zone
            for zone, waiter in self._line.items()
            if zone not in finding and not self._engine.is_running(waiter.work)
        )

    # Preemption

    def _make_free(self) -> None:
        """Preempt running requests for the zones in the line that have waited for long enough."""
        free = self._engine.encoder_room.cache
        for waiter in self._line.values():
            free -= waiter.needed.cache
            if free < 0 and self._is_due(waiter):
                victims = self._victims(waiter, -free)
                free += self._freed(victims)
                for work in victims:
                    self._preempt(work, "encoder", waiter.work.zone)

    def _freed(self, works: Collection[W]) -> int:
        """Returns the number of embeddings that no request would use if these requests were preempted."""
        leaving = set(works)
        return sum(embeddings for embeddings, users in self._engine.encodings_in_use() if users <= leaving)

    def _is_due(self, waiter: _Waiter[W]) -> bool:
        """Whether a waiting zone's grace period is over. Usually the zone gets room earlier, within a few steps."""
        waited_seconds = self._ledger.now - waiter.since
        is_worth_it = self._step - waiter.step >= TURN_STEPS
        return is_worth_it and waited_seconds >= waiter.work.zone.spec.lending.grace_seconds

    def _victims(self, waiter: _Waiter[W], missing: int) -> Collection[W]:
        """Returns the running requests to preempt to free ``missing`` embeddings; empty if that is not possible.

        Requests of the lowest priority are preempted first, and among equals the youngest, as for seats.
        """
        stuck = {work for work, _ in self._wanted()}
        places = {zone: place for place, zone in enumerate(self._line)}

        def may_yield(work: W) -> bool:
            if work is waiter.work:
                return False
            if waiter.is_entitled and not self._is_entitled(work.zone):
                return True
            # Otherwise two requests that each hold room that the other needs could block each other forever.
            is_behind = work.zone is waiter.work.zone or places.get(work.zone, 0) > places[waiter.work.zone]
            return work in stuck and is_behind

        candidates = filter(may_yield, reversed(self._engine.by_seniority()))
        in_turn = sorted(candidates, key=lambda each: each.zone.spec.priority)
        turns = {work: turn for turn, work in enumerate(in_turn)}
        # Make only one pass over all encodings, since there may be a thousand encodings and hundreds of requests.
        freed_at = [0] * len(in_turn)
        held: dict[W, list[_Held[W]]] = {work: [] for work in in_turn}
        for embeddings, users in self._engine.encodings_in_use():
            if users <= turns.keys():
                freed_at[max(turns[user] for user in users)] += embeddings
                for user in users:
                    held[user].append((embeddings, users))
        freed = list(accumulate(freed_at))
        count = bisect_left(freed, missing)
        return _needed_of(in_turn[: count + 1], held, freed[count] - missing) if count < len(freed) else ()


def _needed_of(victims: Iterable[W], held: Mapping[W, Iterable[_Held[W]]], surplus: int) -> Collection[W]:
    """Returns the victims that must be preempted, leaving out those whose preemption would free no needed embeddings.

    Args:
        victims: the requests that may be preempted.
        held: for each victim, the encodings that it uses; for each encoding, its number of embeddings and all requests
            that use it.
        surplus: number of embeddings that would be freed beyond the needed ones.
    """
    needed = dict.fromkeys(victims)
    for work in list(needed):
        kept = sum(embeddings for embeddings, users in held[work] if users <= needed.keys())
        if kept <= surplus:
            surplus -= kept
            del needed[work]
    return needed
