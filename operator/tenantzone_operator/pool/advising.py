"""Connects the advisor to a pool's objects, status and engines."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tenantzone_operator.advice.advisor import Advisor, Moment, pause_seconds
from tenantzone_operator.advice.overlay import Overlaid, Overlay
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.status.acknowledgement import History


class Advising:
    """The advisor of one pool, with the overlay that applies its adjustments."""

    def __init__(self) -> None:
        self._overlay = Overlay()
        self._advisor = Advisor()
        self._in_force = Overlaid(None, ())

    def over(self, pool: Pool | None, zones: Sequence[Zone]) -> Overlaid:
        """Returns the pool and zones with the advisor's current adjustments, as the config for engines needs them."""
        self._in_force = self._overlay.over(pool, zones)
        return self._in_force

    def status(
        self,
        pool: Pool,
        zones: Sequence[Zone],
        observations: Sequence[Observation],
        history: History,
        before: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Returns the fields ``recommendation`` and ``adjustments`` of the pool's status; see ``Advisor.look``."""
        reported = [seen.report for seen in observations]
        moment = Moment(
            pool=pool,
            zones=zones,
            in_force=self._in_force,
            observations=observations,
            newest=history.newest,
            is_acknowledged=all(report is not None and history.acknowledges_newest(report) for report in reported),
            seconds=time.monotonic(),
            unix_time=time.time(),
        )
        return self._advisor.look(moment, before)

    def pause_seconds(self, pool: Pool | None) -> float | None:
        """Returns the seconds until the next sample of the engines' reports; None if the advice needs no samples."""
        if pool is None or pool.config is None or pool.advice.mode != "Auto":
            return None
        return pause_seconds(pool.advice.window_seconds)
