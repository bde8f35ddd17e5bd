"""What zones with latency targets get: their times of late, and why a target is missed."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from tenantzone_contract.report import LatencyReason, WaitReason
from tenantzone_runtime.zones.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.step_time import StepTimes
from tenantzone_runtime.zones.totals import Totals
from tenantzone_runtime.zones.zone import Zone

WINDOW_SECONDS: Final = 60.0
"""What is longer ago says nothing any more."""
TOLERANCE: Final = 1.15
"""A target counts as met up to so many times itself: it is a bound on predictions."""

_SAMPLES: Final = 2048
_PERCENTILE: Final = 0.99
_FOR_BLOCKS: Final[tuple[WaitReason, ...]] = ("limit", "reserved", "in_use")
_FOR_SEATS: Final[tuple[WaitReason, ...]] = ("seats", "seat_limit")


class Window:
    """Seconds that something took, of late."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)

    def add(self, seconds: float, now: float) -> None:
        self._samples.append((now, seconds))

    def percentile(self, now: float) -> float | None:
        """The 99th percentile of the last minute; None where there was nothing."""
        while self._samples and self._samples[0][0] < now - WINDOW_SECONDS:
            self._samples.popleft()
        if not self._samples:
            return None
        ordered = sorted(seconds for _, seconds in self._samples)
        return ordered[min(len(ordered) - 1, int(_PERCENTILE * len(ordered)))]


class _Watched:
    """One zone with a target."""

    def __init__(self) -> None:
        self.token_times = Window()
        self.first_tokens = Window()
        self.stalls: deque[tuple[float, float, float]] = deque()
        """Seconds for which its next request has waited in all, for blocks and for seats, as they were at some time."""

    def look_at_stalls(self, zone: Zone, now: float) -> None:
        stalled = zone.counters.stalled_seconds
        blocks, seats = (sum(stalled.get(reason, 0.0) for reason in reasons) for reasons in (_FOR_BLOCKS, _FOR_SEATS))
        while self.stalls and self.stalls[0][0] < now - WINDOW_SECONDS:
            self.stalls.popleft()
        self.stalls.append((now, blocks, seats))

    def waited_for(self, seconds: float) -> LatencyReason | None:
        """What the zone's next requests have waited for of late, if it was for so many seconds."""
        (_, blocks, seats), (_, blocks_now, seats_now) = self.stalls[0], self.stalls[-1]
        for_blocks, for_seats = blocks_now - blocks, seats_now - seats
        if max(for_blocks, for_seats) < seconds:
            return None
        return "Blocks" if for_blocks >= for_seats else "Seats"


class Latency:
    """The times of zones with latency targets, and what becomes of the targets.

    Args:
        totals: of all zones.
        times: predicts steps.
    """

    def __init__(self, totals: Totals, times: StepTimes) -> None:
        self._totals = totals
        self._times = times
        self._watched: dict[Zone, _Watched] = {}
        self.alone: dict[Zone, tuple[int, float]] = {}
        """For each zone with a target that generates: how many of its requests do, and how long a step of these alone
        is predicted to take."""

    def token_came(self, zone: Zone, seconds: float, now: float) -> None:
        """Note a token of a zone with a target, so long after the one before it."""
        self._of(zone).token_times.add(seconds, now)

    def first_token_came(self, zone: Zone, seconds: float, now: float) -> None:
        """Note a request's first token, so long after its arrival."""
        self._of(zone).first_tokens.add(seconds, now)

    def judge(self, now: float) -> Iterator[None]:
        """Say of each zone what becomes of its targets, with a pause after each."""
        for zone in [zone for zone in self._watched if zone not in self._totals.with_targets]:
            del self._watched[zone]
            self.alone.pop(zone, None)
            zone.outcomes = {}
        for zone in list(self._totals.with_targets):
            watched, targets = self._of(zone), zone.spec.latency
            watched.look_at_stalls(zone, now)
            outcomes: dict[TargetName, TargetOutcome] = {}
            if targets.token_time_seconds is not None:
                outcomes["token_time"] = self._outcome(
                    zone, targets.token_time_seconds, watched.token_times.percentile(now)
                )
            if targets.first_token_seconds is not None:
                actual = watched.first_tokens.percentile(now)
                outcomes["first_token"] = self._outcome(zone, targets.first_token_seconds, actual, watched)
            zone.outcomes = outcomes
            yield

    def _outcome(self, zone: Zone, target: float, actual: float | None, waits: _Watched | None = None) -> TargetOutcome:
        if actual is None:
            return TargetOutcome(target, None, None, "NoTraffic")
        if actual <= TOLERANCE * target:
            return TargetOutcome(target, actual, True, "Met")
        waited_for = None if waits is None else waits.waited_for(actual - target)
        return TargetOutcome(target, actual, False, waited_for or self._slowed_by(zone, target))

    def _slowed_by(self, zone: Zone, target: float) -> LatencyReason:
        """Why steps are longer than a target."""
        if not self._times.knows(has_prompts=False):
            return "Warming"
        requests, seconds = self.alone.get(zone, (0, 0.0))
        if seconds <= target:
            return "Neighbours"
        return "OwnLoad" if requests > 1 else "ModelTooSlow"

    def _of(self, zone: Zone) -> _Watched:
        return self._watched.setdefault(zone, _Watched())
