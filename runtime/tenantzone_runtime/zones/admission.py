"""Zones with waiting requests, and which of them is looked at next.

The fair queue decides whose turn it is. A zone whose next request was denied its blocks is parked: nobody looks at it
before something changes for it (``denials``). A zone may also stand aside for the step that is being made.
"""

from collections.abc import Callable, Iterator

from tenantzone_runtime.zones.denials import Denials
from tenantzone_runtime.zones.fair_queue import Account, FairQueue, Place
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.zone import Zone


class Admission:
    """The zones with waiting requests, considered one after the other.

    Args:
        ledger: of all zones.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._totals = ledger.totals
        self._fair = FairQueue()
        self._denials = Denials(ledger)
        self._zones: dict[Account, Zone] = {}
        self._unseen: dict[Zone, None] = {}
        """Those whose next request is new, or may be admissible since something changed."""

    def __contains__(self, zone: Zone) -> bool:
        return zone.account in self._zones

    def enter(self, zone: Zone) -> None:
        """Enter a zone that has a waiting request, or whose next one is another than before."""
        if zone.account not in self._zones:
            self._zones[zone.account] = zone
            self._fair.enter(zone.account)
        self._unpark(zone)

    def leave(self, zone: Zone) -> None:
        """Take out a zone that has no waiting request any more; harmless if it had none."""
        if self._zones.pop(zone.account, None) is not None:
            self._fair.leave(zone.account)
            self._unseen.pop(zone, None)
            self._denials.unpark(zone)

    def __iter__(self) -> Iterator[Zone]:
        return iter(self._zones.values())

    def take_unseen(self) -> list[Zone]:
        """Zones to look at before the step, since what they wait for may be there."""
        unseen, self._unseen = self._unseen, {}
        return list(unseen)

    def look_again(self, zone: Zone) -> None:
        """Have the zone looked at before the next step, too."""
        if zone.account in self._zones:
            self._unseen[zone] = None

    def next(
        self, is_admissible: Callable[[Zone], bool], may_call: Callable[[], bool], free: int, *, is_running: bool
    ) -> Zone | None:
        """The zone whose turn it is, of those whose next request can be admitted.

        The others are parked by whoever finds that out, or stand aside until the step is over.

        Args:
            is_admissible: whether a zone's next request can be admitted.
            may_call: whether it is worth while to look at parked zones for which blocks may be there.
            free: blocks that are free now.
            is_running: whether requests run.
        """

        def call(first: Place | None) -> Account | None:
            if not may_call():
                return None
            zone = self._denials.first(free, self._fair.place, is_running=is_running)
            if zone is None or (first is not None and first < self._fair.place(zone.account)):
                return None
            self._denials.unpark(zone)
            return zone.account

        account = self._fair.next(lambda candidate: is_admissible(self._zones[candidate]), call)
        return None if account is None else self._zones[account]

    def first(self) -> Iterator[Zone]:
        """The zones that are in the queue, roughly in the order in which they come; nothing may change meanwhile."""
        return (self._zones[account] for account in self._fair.first())

    def somebody_was_admitted(self) -> None:
        """Have denied zones looked at again: what room was made, and what is kept for whom, is different now."""
        self._denials.line_up()

    def park(self, zone: Zone, count: int, peak: int, headroom: int) -> None:
        """Park a zone whose next request was denied ``count`` blocks, until that may be different."""
        self._denials.park(zone, count, peak, headroom)
        self._fair.hold(zone.account)

    def set_aside(self, zone: Zone) -> None:
        """Look at no request of the zone until the step is over."""
        if zone.account in self._zones:
            self._unpark(zone)
            self._fair.set_aside(zone.account)

    def take_back(self, zones: list[Zone]) -> None:
        """Put zones that stood aside back into the queue, within the step."""
        for zone in zones:
            self._fair.release(zone.account)

    def end_step(self) -> None:
        """Put zones that stood aside in the step back into the queue."""
        self._denials.line_up()
        self._fair.end_round()

    def wake(self) -> None:
        """Unpark the zones for which something has changed."""
        for zone in self._totals.take_stirred():
            self._unpark(zone)

    def wake_those(self, have_changed: Callable[[Zone], bool]) -> None:
        """Unpark the zones for which ``have_changed`` holds."""
        for zone in [zone for zone in self._zones.values() if zone.parked and have_changed(zone)]:
            self._unpark(zone)

    def wake_all(self) -> bool:
        """Unpark every zone; returns whether one was parked."""
        parked = [zone for zone in self._zones.values() if zone.parked]
        for zone in parked:
            self._unpark(zone)
        return bool(parked)

    def _unpark(self, zone: Zone) -> None:
        if zone.account not in self._zones:
            return
        self._unseen[zone] = None
        if zone.parked:
            self._denials.unpark(zone)
            self._fair.release(zone.account)
