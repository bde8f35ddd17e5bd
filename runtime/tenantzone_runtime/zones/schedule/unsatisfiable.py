"""Unsatisfiable requests, which fitted when they arrived, but can never get their blocks under the current config."""

from typing import Final, Generic

from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.admission import Admission
from tenantzone_runtime.zones.tenancy import Tenancy

UNSATISFIABLE_SECONDS: Final = 30.0
"""Seconds for which an unsatisfiable request waits for another config before it is failed."""


class Unsatisfiable(Generic[W]):
    """The zones whose next request can't be served under the active config.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine.
        admission: the zones with waiting requests.
    """

    def __init__(self, tenancy: Tenancy, engine: Engine[W], admission: Admission) -> None:
        self._tenancy = tenancy
        self._ledger = tenancy.ledger
        self._engine = engine
        self._admission = admission
        self._since: dict[Zone, tuple[W, float]] = {}
        """The unsatisfiable request of each zone, and the time at which this was found, in order of this time."""

    def note(self, work: W, count: int) -> None:
        """Note that a zone's next request was denied ``count`` blocks, and warn if the zone can never have as many."""
        zone = work.zone
        if zone.in_use or self._can_have(work, count):
            self._since.pop(zone, None)
        elif zone not in self._since:
            self._since[zone] = work, self._ledger.now
            self._engine.warn(work, self._tenancy.why_never(zone, count, work.peak))

    def look_at_front(self, zone: Zone) -> None:
        """Forget the zone's unsatisfiable request if it is not the next one any more."""
        if zone in self._since and not self._is_front(self._since[zone][0]):
            del self._since[zone]

    def fail(self) -> None:
        """Fail requests that have been unsatisfiable for a while, because they block other requests of their zone."""
        while self._since:
            zone, (work, since) = next(iter(self._since.items()))
            if self._ledger.now - since < UNSATISFIABLE_SECONDS:
                return
            del self._since[zone]
            if zone.in_use:
                continue
            count = self._engine.blocks_to_admit(work)
            if not self._can_have(work, count):
                self._engine.fail(work, self._tenancy.why_never(zone, count, work.peak))

    def _is_front(self, work: W) -> bool:
        return work.zone in self._admission and self._engine.front(work.zone) is work

    def _can_have(self, work: W, count: int) -> bool:
        return count <= self._ledger.totals.reachable(work.zone, work.peak)
