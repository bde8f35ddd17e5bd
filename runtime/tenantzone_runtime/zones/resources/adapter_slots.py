"""Adapter slots: which LoRA adapters run at once, and which give up their slots. ``adapter_line`` decides for whom.

An engine runs requests for a limited number of different adapters at a time (``--max-loras``). A zone is *entitled* if
it has seats of its own. While an entitled zone waits for a slot, no further request begins for an adapter that only
zones without seats of their own use, and after the waiting zone's ``lending.grace`` the requests of one such adapter
are preempted. Between equal zones, slots rotate: after the grace period, the adapter that has had its slot for the
longest time gives it up. A zone that uses several slots gives one up for a zone that uses fewer, or for another adapter
of its own.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from itertools import chain
from typing import Generic

from tenantzone_runtime.zones.audit.events import PreemptionReason
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.adapter_line import AdapterLine, Waiter
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS, AdapterTurns


class AdapterSlots(Generic[W]):
    """The adapter slots of one engine.

    Args:
        engine: the engine.
        ledger: provides the current time.
        is_entitled: returns whether a zone has seats of its own.
        has_seat: returns whether a seat is free for a zone's next request, or can be made free.
        could_begin: returns whether a waiting request could begin now if its adapter had a slot.
        preempt: preempts a running request, for a reason and for the benefit of a zone.
    """

    def __init__(
        self,
        engine: Engine[W],
        ledger: Ledger,
        is_entitled: Callable[[Zone], bool],
        has_seat: Callable[[Zone], bool],
        could_begin: Callable[[W], bool],
        preempt: Callable[[W, PreemptionReason, Zone | None], None],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._is_entitled = is_entitled
        self._has_seat = has_seat
        self._preempt = preempt
        self._step = 0
        self._users: dict[int, set[Zone]] = {}
        """Adapters that have a slot, each with the zones that have running or loading requests with the adapter."""
        self._turns = AdapterTurns(engine, ledger)
        self._line = AdapterLine(engine, ledger, is_entitled, could_begin, self._is_open)
        self.waiting: set[Zone] = set()
        """The zones that wait for a slot."""
        self._closed: set[int] = set()
        """Adapters that have a slot, but with which no further request begins in this step."""
        self._granted: dict[int, Zone] = {}
        """Adapters for which a free slot is kept in this step, each with the zone that waits for it."""
        self._refused_before: frozenset[tuple[str, int]] = frozenset()

    # Queries

    def may_have(self, work: W) -> bool:
        """Whether a waiting request needs no adapter slot, or may have one in this step."""
        adapter = self._engine.adapter(work)
        if adapter is None:
            return True
        if adapter in self._users:
            return adapter not in self._closed
        free = self._engine.adapter_slots - len(self._users)
        return free > 0 and (adapter in self._granted or free > len(self._granted))

    def blocks_at_most(self, work: W) -> int:
        """Returns the most blocks that a waiting request can need; 0 if it waits for something else, such as a slot."""
        return self._engine.blocks_at_most(work) if self.may_have(work) else 0

    @property
    def granted(self) -> Iterable[Zone]:
        """The zones for which free slots are kept in this step."""
        return self._granted.values()

    # Steps

    def begin_step(self, zones: Iterable[Zone]) -> bool:
        """Decide which adapters this step may use, and preempt the requests of adapters that give up their slots.

        To be called only if the engine uses adapters.

        Args:
            zones: zones with waiting requests.

        Returns:
            Whether an adapter that could be used in the previous step may not be used in this one.
        """
        self._step += 1
        self._count_users()
        granted_before, self._granted = self._granted, {}
        slots = self._engine.adapter_slots
        if self._engine.is_open and (self._line or len(self._users) >= slots):
            self._line.line_up(zones, self._users)
            self._closed = set()
            self._decide(slots, granted_before)
        else:
            self._line.clear()
            self._closed = set()
        self.waiting = self._line.zones_without_slot()
        refused = frozenset(
            chain(
                (("used", adapter) for adapter in self._users),
                (("closed", adapter) for adapter in self._closed),
                (("granted", adapter) for adapter in self._granted),
            )
        )
        before, self._refused_before = self._refused_before, refused
        return not refused <= before

    def has_begun(self, work: W) -> None:
        """Note that a waiting request has left its queue, most likely because it was admitted."""
        adapter = self._engine.adapter(work)
        if adapter is None:
            return
        self._granted.pop(adapter, None)
        self._users.setdefault(adapter, set()).add(work.zone)
        self._turns.begin(adapter, self._step)
        if not self._line.waits_for_another(work.zone, adapter):
            self.waiting.discard(work.zone)

    def _count_users(self) -> None:
        self._users = {}
        for work in chain(self._engine.running, self._engine.loading):
            adapter = self._engine.adapter(work)
            if adapter is not None:
                self._users.setdefault(adapter, set()).add(work.zone)
        self._turns.begin_step(self._users, self._step)

    def _is_open(self, adapter: int) -> bool:
        """Whether an adapter has a slot, and further requests may begin with this adapter."""
        return adapter in self._users and adapter not in self._closed

    # Decisions

    def _decide(self, slots: int, granted_before: Container[int]) -> None:
        """Close adapters, make some of them give up their slots, and keep free slots for the first waiters."""
        waiters = self._line.ready(self._step, granted_before)
        self._make_free(waiters, slots)
        for waiter in waiters:
            is_one_free = len(self._users) + len(self._granted) < slots
            if waiter.adapter not in self._users and is_one_free and self._has_seat(waiter.zone):
                # If another zone waits for the same adapter, this slot is for both.
                self._granted.setdefault(waiter.adapter, waiter.zone)
                waiter.helped = self._ledger.now
                if waiter.adapter not in granted_before:
                    waiter.granted_in = self._step

    def _make_free(self, waiters: Iterable[Waiter[W]], slots: int) -> None:
        """For waiters without a free slot, make adapters whose time is up give up their slots."""
        joined: set[int] = set()
        provided: set[int] = set()
        for waiter in waiters:
            if waiter.adapter in self._users:
                if waiter.adapter not in self._closed and waiter.is_entitled:
                    # This entitled waiter is about to use the adapter, so no later waiter may close the adapter.
                    joined.add(waiter.adapter)
            elif waiter.adapter in provided:
                continue
            elif len(self._users) + len(provided) < slots:
                if self._has_seat(waiter.zone):
                    provided.add(waiter.adapter)
            elif self._one_gives_up(waiter, joined):
                # The preempted request's seat is free now, too.
                provided.add(waiter.adapter)

    def _one_gives_up(self, waiter: Waiter[W], joined: set[int]) -> bool:
        """Make an adapter whose time is up give up its slot for a waiter; returns whether an adapter did."""
        if waiter.is_entitled:
            unentitled = [
                adapter
                for adapter, users in self._users.items()
                if adapter not in joined and not any(map(self._is_entitled, users))
            ]
            self._closed.update(unentitled)
            if unentitled:
                due = [adapter for adapter in unentitled if self._is_due(adapter, waiter)]
                # The youngest adapter of the lowest priority gives up its slot first, as for seats.
                due.sort(key=lambda adapter: (self._priority(adapter), -self._turns.began_in(adapter)))
                return any(self._gives_up(adapter, waiter.zone) for adapter in due)
        due = [
            adapter
            for adapter, users in self._users.items()
            if adapter not in joined
            and self._may_rotate(users, waiter.zone, adapter)
            and self._is_due(adapter, waiter)
            and self._has_had_its_turn(adapter, waiter)
        ]
        slots_used = Counter(chain.from_iterable(self._users.values()))
        due.sort(
            key=lambda adapter: (-max(slots_used[zone] for zone in self._users[adapter]), self._turns.began_in(adapter))
        )
        return any(self._gives_up(adapter, waiter.zone, rotates=True) for adapter in due)

    def _may_rotate(self, users: set[Zone], zone: Zone, adapter: int) -> bool:
        """Whether an adapter that ``users`` use can give up its slot, by rotation, for another adapter of ``zone``."""
        others = [used for other, used in self._users.items() if other != adapter]
        left_to_zone = sum(zone in used for used in others)
        is_entitled = self._is_entitled(zone)
        for user in users - {zone}:
            left_to_user = sum(user in used for used in others)
            if left_to_user < left_to_zone or (self._is_entitled(user) and not is_entitled and not left_to_user):
                return False
        return True

    def _is_due(self, adapter: int, waiter: Waiter[W]) -> bool:
        """Whether the waiting zone's grace period is over, and the adapter has had its slot for enough steps."""
        waited_seconds = self._ledger.now - max(waiter.since, waiter.helped)
        is_worth_it = self._step - self._turns.began_in(adapter) >= TURN_STEPS
        return is_worth_it and waited_seconds >= waiter.zone.spec.lending.grace_seconds

    def _has_had_its_turn(self, adapter: int, waiter: Waiter[W]) -> bool:
        """Whether an adapter has had its slot for the waiter's grace period, and got further than in its last turn."""
        if self._turns.seconds(adapter) < waiter.zone.spec.lending.grace_seconds:
            return False
        return self._turns.has_made_progress(adapter, self._running_with(adapter), self._step)

    def _gives_up(self, adapter: int, beneficiary: Zone, *, rotates: bool = False) -> bool:
        """Preempt all requests of an adapter; returns whether its slot is free now.

        While a request with the adapter is being loaded from a tier, nothing is preempted, but no request begins with
        the adapter.
        """
        if any(self._engine.adapter(work) == adapter for work in self._engine.loading):
            self._closed.add(adapter)
            return False
        running = self._running_with(adapter)
        self._turns.end(adapter, running if rotates else ())
        for work in running:
            self._preempt(work, "adapter", beneficiary)
        del self._users[adapter]
        self._closed.discard(adapter)
        return True

    def _running_with(self, adapter: int) -> list[W]:
        return [work for work in self._engine.running if self._engine.adapter(work) == adapter]

    def _priority(self, adapter: int) -> int:
        """Returns the highest priority of the zones that use an adapter."""
        return max(zone.spec.priority for zone in self._users[adapter])
