"""Unsatisfiable requests: they could have had their blocks when they arrived, until a config made that impossible."""

from typing import Final, Generic

from tenantzone_runtime.zones.admission import Admission
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.zone import Zone

UNSATISFIABLE_SECONDS: Final = 30.0
"""How long such a request waits for the next config before it is failed."""


class Unsatisfiable(Generic[W]):
    """The zones whose next request can't be served by the active config.

    Args:
        tenancy: the zones.
        engine: whose requests.
        admission: knows the zones with waiting requests.
    """

    def __init__(self, tenancy: Tenancy, engine: Engine[W], admission: Admission) -> None:
        self._tenancy = tenancy
        self._ledger = tenancy.ledger
        self._engine = engine
        self._admission = admission
        self._since: dict[Zone, tuple[W, float]] = {}
        """The request, and since when that is known; in order."""

    def note(self, work: W, count: int) -> None:
        """Note that a zone's next request was denied ``count`` blocks, and warn if its zone can never have as many."""
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
        """End requests that no config has helped for a while: they hold up the others of their zone."""
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
