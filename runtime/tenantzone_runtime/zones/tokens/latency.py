"""The recent latencies of zones with targets, and why a target is missed."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log
from typing import Final

from tenantzone_contract.reports.words import LatencyReason, WaitReason
from tenantzone_runtime.zones.model.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.model.step_time import StepTimes
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.tokens.latency_bounds import OWN_PROMPT_STEPS, TOLERANCE, token_time_bound

WINDOW_SECONDS: Final = 60.0
"""Length of the window. Older values do not count."""

_SLICE_SECONDS: Final = 5.0
"""Length of a slice of the window. Old values are dropped by slices."""
_SHORTEST: Final = 1e-6
"""Upper bound of the first bucket in seconds. It counts all shorter times."""
_PER_FACTOR: Final = 100.0
"""Number of buckets per factor of e. Each bucket is 1 % wider than the previous one."""
_PERCENTILE: Final = 0.99
_FOR_BLOCKS: Final[tuple[WaitReason, ...]] = ("limit", "reserved", "in_use")
_FOR_SEATS: Final[tuple[WaitReason, ...]] = ("seats", "seat_limit")


class Window:
    """The durations observed in the last minute, in bounded memory.

    They are counted for slices of the minute, in buckets whose width is 1 % of their value.
    """

    def __init__(self) -> None:
        self._slices: deque[tuple[float, dict[int, tuple[int, float]]]] = deque()
        """The start time of each slice, and by bucket, the count and the longest duration."""

    def add(self, seconds: float, now: float, times: int = 1) -> None:
        if not self._slices or now - self._slices[-1][0] >= _SLICE_SECONDS:
            self._forget(now)
            self._slices.append((now, {}))
        counts = self._slices[-1][1]
        bucket = ceil(_PER_FACTOR * log(max(seconds, _SHORTEST)))
        count, longest = counts.get(bucket, (0, 0.0))
        counts[bucket] = count + times, max(longest, seconds)

    def percentile(self, now: float) -> float | None:
        """Returns the 99th percentile of the last minute, at most 1 % too high; None if there are no values."""
        self._forget(now)
        counts: Counter[int] = Counter()
        for _, slice in self._slices:
            for bucket, (count, _) in slice.items():
                counts[bucket] += count
        longer = counts.total() - 1 - int(_PERCENTILE * counts.total())
        for bucket in sorted(counts, reverse=True):
            longer -= counts[bucket]
            if longer < 0:
                return max(slice[bucket][1] for _, slice in self._slices if bucket in slice)
        return None

    def _forget(self, now: float) -> None:
        while self._slices and self._slices[0][0] < now - WINDOW_SECONDS:
            self._slices.popleft()


class _Reasons:
    """The main reason for missing a target in the last minute, which does not change every second."""

    def __init__(self) -> None:
        self._given: deque[tuple[float, LatencyReason]] = deque()
        self._reported: LatencyReason | None = None

    def mostly(self, reason: LatencyReason, now: float) -> LatencyReason:
        """Add a reason, and return the one to report: the current one, until another is twice as frequent."""
        self._given.append((now, reason))
        while self._given[0][0] < now - WINDOW_SECONDS:
            self._given.popleft()
        counts = Counter(each for _, each in self._given)
        usual, times = counts.most_common(1)[0]
        if self._reported is None or times >= 2 * counts[self._reported]:
            self._reported = usual
        return self._reported


class _Watched:
    """The recent latencies and waits of one zone with a target."""

    def __init__(self) -> None:
        self.token_times = Window()
        self.first_tokens = Window()
        self.reasons: defaultdict[TargetName, _Reasons] = defaultdict(_Reasons)
        """Reasons for missing the zone's targets, by target."""
        self.stalls: deque[tuple[float, float, float, float]] = deque()
        """Samples: each has a time, and the zone's total stalled seconds for blocks, for seats and for all reasons."""

    def look_at_stalls(self, zone: Zone, now: float) -> None:
        stalled = zone.counters.stalled_seconds
        blocks, seats = (sum(stalled.get(reason, 0.0) for reason in reasons) for reasons in (_FOR_BLOCKS, _FOR_SEATS))
        while self.stalls and self.stalls[0][0] < now - WINDOW_SECONDS:
            self.stalls.popleft()
        self.stalls.append((now, blocks, seats, sum(stalled.values())))

    def waited(self) -> float:
        """Returns the seconds in the window for which the zone's next request could not be admitted."""
        return self.stalls[-1][3] - self.stalls[0][3]

    def waited_for(self, seconds: float) -> LatencyReason | None:
        """Returns whether the zone mainly waited for blocks or for seats; None if it waited less than ``seconds``."""
        (_, blocks, seats, _), (_, blocks_now, seats_now, _) = self.stalls[0], self.stalls[-1]
        for_blocks, for_seats = blocks_now - blocks, seats_now - seats
        if max(for_blocks, for_seats) < seconds:
            return None
        return "Blocks" if for_blocks >= for_seats else "Seats"


@dataclass(slots=True)
class Alone:
    """The time that a zone's requests take without other zones."""

    requests: int = 0
    """Number of running requests that generate."""
    step_seconds: float = 0.0
    """Predicted duration of a step that computes only these requests."""
    prefill_seconds: float = 0.0
    """Recent mean of the time that the zone's simultaneous prompts would add to a step that computes all of them."""
    prompt_steps: int = OWN_PROMPT_STEPS
    """Number of steps over which the zone's prompts may be spread."""


class Latency:
    """The latencies of zones with targets, and whether they meet them.

    Args:
        tenancy: tenancy with all zones.
        times: predicts the duration of steps.
    """

    def __init__(self, tenancy: Tenancy, times: StepTimes) -> None:
        self._tenancy = tenancy
        self._with_targets = tenancy.ledger.totals.with_targets
        self._times = times
        self._watched: dict[Zone, _Watched] = {}
        self.alone: dict[Zone, Alone] = {}
        """The time that the requests of each zone with a target take without other zones."""

    def tokens_came(self, zone: Zone, seconds: float, now: float, tokens: int = 1) -> None:
        """Note that a zone with a target generated ``tokens`` tokens ``seconds`` after the previous ones."""
        self._of(zone).token_times.add(seconds, now, tokens)

    def first_token_came(self, zone: Zone, seconds: float, now: float) -> None:
        """Note the seconds from a request's arrival to its first token."""
        self._of(zone).first_tokens.add(seconds, now)

    def judge(self, now: float) -> Iterator[None]:
        """Update the outcomes of all targets, one zone per iteration, so that the caller can pause in between."""
        for zone in [zone for zone in (*self._watched, *self.alone) if zone not in self._with_targets]:
            self.forget(zone)
            zone.outcomes = {}
        for zone in list(self._with_targets):
            if zone not in self._with_targets:
                continue
            self._tenancy.count(zone)
            watched, targets = self._of(zone), zone.spec.latency
            watched.look_at_stalls(zone, now)
            outcomes: dict[TargetName, TargetOutcome] = {}
            if targets.token_time_seconds is not None:
                outcomes["token_time"] = self._outcome("token_time", zone, targets.token_time_seconds, watched, now)
            if targets.first_token_seconds is not None:
                outcomes["first_token"] = self._outcome("first_token", zone, targets.first_token_seconds, watched, now)
            zone.outcomes = outcomes
            yield

    def forget(self, zone: Zone) -> None:
        """Forget a zone that was removed, or has no more targets."""
        self._watched.pop(zone, None)
        self.alone.pop(zone, None)

    def _outcome(self, name: TargetName, zone: Zone, target: float, watched: _Watched, now: float) -> TargetOutcome:
        is_first = name == "first_token"
        actual = (watched.first_tokens if is_first else watched.token_times).percentile(now)
        if actual is None and is_first and watched.waited() > TOLERANCE * target:
            # No first token was generated, although a request waited.
            actual = watched.waited()
        if actual is None:
            return TargetOutcome(target, None, None, "NoTraffic")
        if actual <= TOLERANCE * target:
            return TargetOutcome(target, actual, True, "Met")
        waited_for = watched.waited_for(actual - target) if is_first else None
        reason = watched.reasons[name].mostly(waited_for or self._slowed_by(name, zone, target), now)
        return TargetOutcome(target, actual, False, reason)

    def _slowed_by(self, name: TargetName, zone: Zone, target: float) -> LatencyReason:
        """Returns the reason why steps take longer than a target."""
        if not self._times.is_known:
            return "Warming"
        alone = self.alone.get(zone, Alone())
        if alone.step_seconds > target:
            return "OwnLoad" if alone.requests > 1 else "ModelTooSlow"
        step, prefill = alone.step_seconds, alone.prefill_seconds
        if name == "first_token":
            own_prompts = step + prefill > target
        else:
            bound = token_time_bound(target, solo_step=step, own_prefill=prefill, prompt_steps=alone.prompt_steps)
            own_prompts = bound > TOLERANCE * target
        return "OwnPrompts" if own_prompts else "Neighbours"

    def _of(self, zone: Zone) -> _Watched:
        return self._watched.setdefault(zone, _Watched())
