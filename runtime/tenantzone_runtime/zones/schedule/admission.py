"""The zones with waiting requests, and the order in which they are considered.

The fair queue decides whose turn it is. A zone whose next request was denied its blocks backs off: it is not considered
again before something changes for it (``backoff``). A zone may also be set aside for the current step.
"""

from collections.abc import Callable, Iterator

from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.model.fair_queue import Account, FairQueue, Place
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.backoff import BackoffSet


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

    def next(
        self, is_admissible: Callable[[Zone], bool], may_call: Callable[[], bool], free: int, *, is_running: bool
    ) -> Zone | None:
        """Returns the zone whose turn it is, of all zones whose next request can be admitted.

        Zones whose next request can't be admitted are set aside until the end of the step, unless ``is_admissible``
        makes them back off.

        Args:
            is_admissible: returns whether a zone's next request can be admitted.
            may_call: returns whether to consider backed-off zones for which blocks may be available.
            free: number of blocks that are free now.
            is_running: whether any requests are running.
        """

        def call(first: Place | None) -> Account | None:
            if not may_call():
                return None
            zone = self._backoff.first(free, self._fair.place, is_running=is_running)
            if zone is None or (first is not None and first < self._fair.place(zone.account)):
                return None
            self._backoff.discard(zone)
            return zone.account

        account = self._fair.next(lambda candidate: is_admissible(self._zones[candidate]), call)
        return None if account is None else self._zones[account]

    def first(self) -> Iterator[Zone]:
        """Returns the zones in the queue, roughly in their order. The queue must not change during the iteration."""
        return (self._zones[account] for account in self._fair.first())

    def somebody_was_admitted(self) -> None:
        """Consider denied zones again, because an admission changes which blocks are free, cached and kept."""
        self._backoff.line_up()

    def back_off(self, zone: Zone, count: int, peak: int, headroom: int) -> None:
        """Make a zone back off whose next request was denied ``count`` blocks, until that may have changed."""
        self._backoff.back_off(zone, count, peak, headroom)
        self._fair.hold(zone.account)

    def set_aside(self, zone: Zone) -> None:
        """Consider no request of the zone until the step is over."""
        if zone.account in self._zones:
            self._requeue(zone)
            self._fair.set_aside(zone.account)

    def take_back(self, zones: list[Zone]) -> None:
        """Return zones that were set aside to the queue, within the step."""
        for zone in zones:
            self._fair.release(zone.account)

    def end_step(self) -> None:
        """Return the zones that were set aside in the step to the queue."""
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
