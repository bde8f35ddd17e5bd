"""The steps that were dispatched and have not ended: what each computes, and how long they will take together.

With asynchronous scheduling a step is planned while the previous one runs. A step lasts from the end of the previous
step, if the engine had work then: the time between two steps is part of the time between two tokens.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from tenantzone_runtime.zones.margin import Margin
from tenantzone_runtime.zones.step_time import SURPRISE, StepLoad, StepTimes

FILLED: Final = 0.8
"""A step shows whether the margin suffices if its prediction is at least this fraction of what the margin leaves."""


@dataclass(frozen=True, slots=True)
class _Dispatched:
    step: object
    load: StepLoad
    since: float
    """When it was dispatched, in seconds of the monotonic clock."""
    predicted: float | None
    bound: float | None
    """Seconds that other zones should not exceed in it; None: no zone bounded it."""


class StepsInFlight:
    """The steps of one engine that have not ended, in order.

    Args:
        times: learns how long steps take.
        margin: learns how often steps exceed their bound.
    """

    def __init__(self, times: StepTimes, margin: Margin) -> None:
        self._times = times
        self._margin = margin
        self._dispatched: deque[_Dispatched] = deque()
        self._busy_since: float | None = None
        """When the last step ended, if the engine had work then."""

    def dispatch(self, step: object, load: StepLoad, bound: float | None, now: float) -> None:
        """Notes a step that was just planned.

        Args:
            step: identifies it.
            load: what it computes.
            bound: seconds that other zones should not exceed in it; None: no zone bounded it.
            now: seconds of the monotonic clock, as everywhere here.
        """
        self._dispatched.append(_Dispatched(step, load, now, self._times.predict(load), bound))

    def complete(self, step: object, now: float, *, is_busy: bool) -> None:
        """Learns from a step that has ended; a step that was not dispatched here only ends the busy time.

        Args:
            step: identifies it.
            now: when it ended.
            is_busy: whether the engine still has running requests.
        """
        if self._dispatched and self._dispatched[0].step is step:
            ended = self._dispatched.popleft()
            self._learn(ended, now - self._begin_of(ended))
        self._busy_since = now if is_busy else None

    def clear(self) -> None:
        """Drops all steps: no zone has a latency target any more."""
        self._dispatched.clear()

    def seconds_left(self, now: float) -> float:
        """Returns the predicted time until all these steps have ended."""
        if not self._dispatched:
            return 0.0
        first = self._dispatched[0]
        elapsed = now - self._begin_of(first)
        later = sum(each.predicted or 0.0 for each in list(self._dispatched)[1:])
        return max(0.0, (first.predicted or 0.0) - elapsed) + later

    def _begin_of(self, step: _Dispatched) -> float:
        return step.since if self._busy_since is None else self._busy_since

    def _learn(self, ended: _Dispatched, seconds: float) -> None:
        self._times.observe(ended.load, seconds)
        predicted, bound = ended.predicted, ended.bound
        if predicted is None or bound is None or predicted < FILLED * (1.0 - self._margin.share) * bound:
            return
        # No margin helps against a step that stalls for a reason outside its load.
        if 0.0 < seconds <= SURPRISE * predicted:
            self._margin.observe(seconds / predicted)
