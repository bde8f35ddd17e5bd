"""The zones with waiting requests, and the order in which they are considered.

The fair queue decides whose turn it is. A zone whose next request was denied its blocks backs off: it is not considered
again before something changes for it (``backoff``). A zone may also be set aside for the current step.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator

from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.model.fair_queue import Account, FairQueue, Place
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.backoff import BackoffSet

Candidate = tuple[Place, Zone]
"""A zone to consider, and its place in the order."""


class Candidates:
    """The zones to consider for one admission, in order.

    Args:
        waiting: zones in the queue.
        due: backed-off zones for which blocks may be available.
        may_call: returns whether to consider the zones of ``due`` now.
        returning: sorts zones by the places that they would have if they returned to the queue.
    """

    def __init__(
        self,
        waiting: Iterator[Candidate],
        due: Iterator[Candidate],
        may_call: Callable[[], bool],
        returning: Callable[[Iterable[Zone]], Iterator[Candidate]],
    ) -> None:
        self._waiting = waiting
        self._due = due
        self._may_call = may_call
        self._returning = returning
        self._called: Candidate | None = None

    def __iter__(self) -> Iterator[Zone]:
        first = next(self._waiting, None)
        while True:
            may_call = self._may_call()
            if self._called is None and may_call:
                self._called = next(self._due, None)
            called = self._called if may_call else None
            if called is not None and (first is None or called[0] < first[0]):
                self._called = None
                yield called[1]
            elif first is not None:
                yield first[1]
                first = next(self._waiting, None)
            else:
                return

    def take_back(self, zones: Iterable[Zone]) -> None:
        """Consider these zones once more, after all others were considered."""
        self._waiting = self._returning(dict.fromkeys(zones))


class Admission:
    """The zones with waiting requests, considered one after the other.

    Args:
        ledger: ledger with all zones.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._totals = ledger.totals
        self._fair = FairQueue()
        self._backoff = BackoffSet(ledger)
        self._zones: dict[Account, Zone] = {}
        self._unseen: dict[Zone, None] = {}
        """Zones whose next request is new, or may have become admissible."""
        self.sent_back: dict[Zone, None] = {}
        """Zones that had a request preempted since the last step. This step admits none of their requests."""

    def __contains__(self, zone: Zone) -> bool:
        return zone.account in self._zones

    def enter(self, zone: Zone) -> None:
        """Enter a zone that has a waiting request, or whose next request has changed."""
        if zone.account not in self._zones:
            self._zones[zone.account] = zone
            self._fair.enter(zone.account)
        self._requeue(zone)

    def leave(self, zone: Zone) -> None:
        """Remove a zone that has no waiting request any more; does nothing if it had none."""
        if self._zones.pop(zone.account, None) is not None:
            self._fair.leave(zone.account)
            self._unseen.pop(zone, None)
            self._backoff.discard(zone)

    def __iter__(self) -> Iterator[Zone]:
        return iter(self._zones.values())

    def take_unseen(self) -> list[Zone]:
        """Returns and clears the zones to consider before the step, because their next requests may be admissible."""
        unseen, self._unseen = self._unseen, {}
        return list(unseen)

    def look_again(self, zone: Zone) -> None:
        """Consider the zone also before the next step."""
        if zone.account in self._zones:
            self._unseen[zone] = None

    def candidates(self, may_call: Callable[[], bool], free: int, *, is_running: bool) -> "Candidates":
        """Returns the zones to consider for an admission. Neither this call nor iterating over them changes anything.

        Args:
            may_call: returns whether to consider backed-off zones for which blocks may be available.
            free: number of blocks that are free now.
            is_running: whether any requests are running.
        """
        changed = self._totals.to_reconsider
        woken = [zone for zone in changed if zone.backoff_ticket and zone.account in self._zones] if changed else []
        waiting: Iterator[Candidate] = (
            ((account.service, account.ticket), self._zones[account]) for account in self._fair.in_order()
        )
        due = self._backoff.due(free, self._fair.place, is_running=is_running)
        if woken:
            waiting = heapq.merge(waiting, self._returning(woken), key=_by_place)
            due = (zone for zone in due if zone not in changed)
        return Candidates(waiting, ((self._fair.place(zone.account), zone) for zone in due), may_call, self._returning)

    def _returning(self, zones: Iterable[Zone]) -> Iterator["Candidate"]:
        """Returns zones that are not in the queue, in the order that they would have if they returned to it now."""
        return iter(sorted(((self._fair.place_of_return(zone.account), zone) for zone in zones), key=_by_place))

    def serve(self, zone: Zone) -> None:
        """Note that the next request of a zone of `candidates` is admitted."""
        self._call(zone)
        self._fair.serve(zone.account)

    def pass_over(self, zone: Zone, note: Callable[[], None]) -> None:
        """Set a zone of `candidates` aside until the end of the step, because its next request can't be admitted.

        Args:
            zone: the zone.
            note: callback that notes why the request waits. If it makes the zone back off, the zone is not set aside.
        """
        self._call(zone)
        note()
        if zone.account.ticket > 0:
            self._fair.set_aside(zone.account)

    def _call(self, zone: Zone) -> None:
        if zone.backoff_ticket:
            self._backoff.discard(zone)
            self._fair.call(zone.account)

    def first(self) -> Iterator[Zone]:
        """Returns the zones in the queue, roughly in their order. The queue must not change during the iteration."""
        return (self._zones[account] for account in self._fair.first())

    def request_was_admitted(self) -> None:
        """Consider denied zones again, because an admission changes which blocks are free, cached and kept."""
        self._backoff.line_up()

    def back_off(self, zone: Zone, count: int, peak: int, headroom: int) -> None:
        """Make a zone back off until its next request, which was denied ``count`` blocks, may be admissible."""
        self._backoff.back_off(zone, count, peak, headroom)
        self._fair.hold(zone.account)

    def set_aside(self, zone: Zone) -> None:
        """Consider no request of the zone until the step is over."""
        if zone.account in self._zones:
            self._requeue(zone)
            self._fair.set_aside(zone.account)

    def send_back(self, zone: Zone) -> None:
        """Consider no request of the zone until the step is over, because one of its requests was preempted."""
        self.sent_back[zone] = None
        self.set_aside(zone)

    def take_back(self, zones: list[Zone]) -> None:
        """Put these zones, which were set aside, back into the queue within the step."""
        for zone in zones:
            self._fair.release(zone.account)

    def end_step(self) -> None:
        """Put back into the queue all zones that were set aside in the step."""
        self.sent_back.clear()
        self._backoff.line_up()
        self._fair.end_round()

    def wake(self) -> None:
        """Requeue the backed-off zones for which something has changed."""
        for zone in self._totals.take_to_reconsider():
            self._requeue(zone)

    def wake_those(self, have_changed: Callable[[Zone], bool]) -> None:
        """Requeue the backed-off zones for which ``have_changed`` returns true."""
        for zone in [zone for zone in self._zones.values() if zone.backoff_ticket and have_changed(zone)]:
            self._requeue(zone)

    def wake_all(self) -> bool:
        """Requeue all backed-off zones; returns whether there were any."""
        backed_off = [zone for zone in self._zones.values() if zone.backoff_ticket]
        for zone in backed_off:
            self._requeue(zone)
        return bool(backed_off)

    def _requeue(self, zone: Zone) -> None:
        if zone.account not in self._zones:
            return
        self._unseen[zone] = None
        if zone.backoff_ticket:
            self._backoff.discard(zone)
            self._fair.release(zone.account)


def _by_place(candidate: Candidate) -> Place:
    return candidate[0]
