"""Bounds from latency targets: which targets apply now, and how many seconds a step may take for each of them."""

from collections.abc import Iterable
from math import inf
from typing import Any

from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.engine import Engine
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tokens.latency_bounds import BESIDE_OWN_PROMPTS
from tenantzone_runtime.zones.tokens.own_requests import OwnRequests
from tenantzone_runtime.zones.tokens.steps_in_flight import StepsInFlight


class TargetBounds:
    """The zones with latency targets, and statistics of their requests.

    Args:
        ledger: ledger with all zones.
        engine: the engine whose steps are bounded.
        in_flight: the steps that have not ended yet.
    """

    def __init__(self, ledger: Ledger, engine: Engine[Any], in_flight: StepsInFlight) -> None:
        self._ledger = ledger
        self._zones = ledger.totals.with_targets
        self._engine = engine
        self._in_flight = in_flight
        self._own: dict[Zone, OwnRequests] = {}

    def update(self) -> dict[Zone, float]:
        """Update the statistics of zones with targets.

        Returns:
            The zones whose targets apply now, each with the seconds that a step may take, shortest first.
        """
        now, zones = self._ledger.now, self._zones
        if len(self._own) > len(zones):
            self._own = {zone: own for zone, own in self._own.items() if zone in zones}
        bounds: dict[Zone, float] = {}
        for zone in zones:
            # This cheap check excludes most zones. There may be a thousand.
            if zone.requests or now - zone.last_active <= zone.spec.idle.after_seconds:
                own = self._own.setdefault(zone, OwnRequests())
                own.look_at(zone, now)
                if self._may_need_steps(zone, own, now):
                    bounds[zone] = self._bound(zone, own)
        return dict(sorted(bounds.items(), key=lambda each: each[1]))

    def own_requests(self, zone: Zone) -> OwnRequests:
        """Returns the statistics of a zone's requests. The zone must be in a result of `update`."""
        return self._own[zone]

    def hit_share(self, zone: Zone) -> float:
        """Returns the fraction of a zone's recent prompts that was found cached; 0 for a zone without a target."""
        own = self._own.get(zone)
        return 0.0 if own is None else own.hit_share

    def left_for_first_tokens(self, bounds: Iterable[Zone]) -> float:
        """Returns the seconds up to which this step may be filled, in case a request arrives now.

        Such a request waits for the steps in flight, for this step, and for the steps that compute its prompt.

        Args:
            bounds: zones whose targets apply now.
        """
        left = self._in_flight.seconds_left(self._ledger.now)
        targets = ((zone.spec.latency.first_token_seconds, self._own[zone].first_token_seconds) for zone in bounds)
        return min((max(alone, target - alone - left) for target, alone in targets if target is not None), default=inf)

    def forget(self, zone: Zone) -> None:
        """Forget a removed zone."""
        self._own.pop(zone, None)

    def _may_need_steps(self, zone: Zone, own: OwnRequests, now: float) -> bool:
        """Returns whether the zone has requests, or its current pause is not longer than earlier ones.

        A zone with a first-token target may always need steps, since the target also covers requests after long pauses.
        """
        if zone.requests or zone.spec.latency.first_token_seconds is not None:
            return True
        return now - zone.last_active <= own.pauses.longest

    def _bound(self, zone: Zone, own: OwnRequests) -> float:
        """Returns the seconds that a step may take for the zone's targets: at least what its prompts take alone."""
        targets = zone.spec.latency
        bound = inf if targets.token_time_seconds is None else targets.token_time_seconds
        if targets.first_token_seconds is not None:
            alone = own.first_token_seconds
            share = (targets.first_token_seconds - alone) / (self._engine.depth + 2 * BESIDE_OWN_PROMPTS)
            bound = min(bound, max(alone, share))
        return bound
