"""The line for adapter slots: which zones wait for which adapter's slot, and which zone gets the next one.

A zone keeps its position in the line while it continues to wait. A waiter is *ready* if its request could begin with a
slot. Slots go to entitled zones first, and among equals to the zone that uses the fewest slots.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from operator import attrgetter
from typing import Final, Generic

from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone

_SEARCHED: Final = 16
"""Maximum number of waiting requests of a zone that are searched for adapters without a slot."""
_CHECKED: Final = 16
"""Maximum number of waiters of each group whose blocks are checked before each step."""


@dataclass(slots=True)
class Waiter(Generic[W]):
    """A zone that waits for the slot of one adapter."""

    work: W
    """The zone's first waiting request that needs the adapter."""
    adapter: int
    since: float
    """Time at which the zone began to wait, in seconds of the monotonic clock."""
    is_reachable: bool = False
    """Whether all requests before ``work`` in the zone's queue wait for something other than blocks and seats."""
    is_ready: bool = False
    """Whether ``work`` could have begun with a slot when it was last checked."""
    checked: int = 0
    """Number of the step in which ``is_ready`` was last checked."""
    helped: float = float("-inf")
    """Time at which a slot was last kept for the waiter. For a while, no other adapter gives up its slot for it."""
    granted_in: int = 0
    """Number of the step since which a slot is kept for the waiter."""
    is_entitled: bool = False
    """Whether the waiter's zone is entitled to the slot."""
    slots_before_it: int = 0
    """Number of slots that the zone uses or has waited for longer. The fewer they are, the sooner it gets a slot."""

    @property
    def zone(self) -> Zone:
        return self.work.zone


class AdapterLine(Generic[W]):
    """The zones that wait for adapter slots of one engine.

    Args:
        engine: the engine.
        ledger: provides the current time.
        is_entitled: returns whether a zone has seats of its own.
        could_begin: returns whether a waiting request could begin now if its adapter had a slot.
        is_open: returns whether an adapter has a slot, and further requests may begin with this adapter.
    """

    def __init__(
        self,
        engine: Engine[W],
        ledger: Ledger,
        is_entitled: Callable[[Zone], bool],
        could_begin: Callable[[W], bool],
        is_open: Callable[[int], bool],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._is_entitled = is_entitled
        self._could_begin = could_begin
        self._is_open = is_open
        self._waiters: dict[tuple[Zone, int], Waiter[W]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def zones_without_slot(self) -> set[Zone]:
        """Returns the zones that wait for an adapter with which no request may begin."""
        return {waiter.zone for waiter in self._waiters.values() if not self._is_open(waiter.adapter)}

    def waits_for_another(self, zone: Zone, adapter: int) -> bool:
        """Whether a zone waits for an adapter other than this one."""
        return any(waiting is zone and other != adapter for waiting, other in self._waiters)

    def clear(self) -> None:
        """Remove all waiters."""
        self._waiters = {}

    def line_up(self, zones: Iterable[Zone], users: Mapping[int, Collection[Zone]]) -> None:
        """Find the zones that wait for slots.

        Args:
            zones: zones with waiting requests.
            users: adapters that have a slot, each with the zones that use it.
        """
        before, self._waiters = self._waiters, {}
        safe = {adapter for adapter, zones_with_it in users.items() if any(map(self._is_entitled, zones_with_it))}
        for zone in zones:
            for waiter in self._find_waiters(zone, safe):
                known = before.get((zone, waiter.adapter))
                if known is not None:
                    known.work, known.is_reachable = waiter.work, waiter.is_reachable
                self._waiters[zone, waiter.adapter] = waiter if known is None else known
        slots_used = Counter(chain.from_iterable(users.values()))
        for waiter in sorted(self._waiters.values(), key=lambda each: each.since):
            waiter.is_entitled, waiter.slots_before_it = self._is_entitled(waiter.zone), slots_used[waiter.zone]
            slots_used[waiter.zone] += 1

    def _find_waiters(self, zone: Zone, safe: Container[int]) -> Iterator[Waiter[W]]:
        """Generate a waiter for each adapter that the zone's next requests need and that has no slot, or may lose it.

        Args:
            zone: a zone with waiting requests.
            safe: adapters that an entitled zone uses, which are never closed.
        """
        engine, is_entitled, is_reachable = self._engine, self._is_entitled(zone), True
        seen: set[int] = set()
        for work in engine.fronts(zone, _SEARCHED):
            adapter = engine.adapter(work)
            is_open = adapter is None or self._is_open(adapter)
            if not engine.blocks_at_most(work):
                continue
            if adapter is not None and adapter not in seen and not (is_open and (adapter in safe or not is_entitled)):
                seen.add(adapter)
                yield Waiter(work, adapter, self._ledger.now, is_reachable)
            is_reachable = is_reachable and not is_open

    def ready(self, step: int, granted_before: Container[int]) -> list[Waiter[W]]:
        """Returns the waiters that could begin with a slot, in the order in which they get one.

        If a slot was first kept for an adapter in the last step, it is kept for the adapter again. The reason is that a
        zone whose request was just preempted begins no request in that step. A slot that has been kept for longer goes
        to entitled zones first.

        Args:
            step: number of the coming step.
            granted_before: adapters for which slots were kept in the last step.
        """
        line = self._waiters.values()
        # Check some waiters of each group, so that a large group does not keep the others from being checked.
        entitled = [waiter for waiter in line if waiter.is_entitled]
        ready_before = [waiter for waiter in line if waiter.is_ready]
        for group in (entitled, ready_before, line):
            for waiter in nsmallest(_CHECKED, group, key=attrgetter("checked")):
                if waiter.checked < step:
                    waiter.checked = step
                    waiter.is_ready = waiter.is_reachable and self._could_begin(waiter.work)
        ready = (waiter for waiter in line if waiter.is_ready)
        return sorted(
            ready,
            key=lambda each: (
                each.adapter not in granted_before or each.granted_in < step - 1,
                not each.is_entitled,
                each.adapter not in granted_before,
                each.slots_before_it,
                each.since,
            ),
        )
