"""The steps in flight, which were dispatched and have not ended: their loads, and their predicted remaining time.

With asynchronous scheduling, a step is planned while the previous one runs. If the engine had work when the previous
step ended, the duration of a step counts from then, because the gap between steps is part of the time between tokens.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from tenantzone_runtime.zones.model.step_time import SURPRISE, StepLoad, StepTimes
from tenantzone_runtime.zones.tokens.margin import Margin

FILLED: Final = 0.8
"""The margin is learned only from steps whose predicted duration is at least this fraction of the bound minus the
margin."""


@dataclass(frozen=True, slots=True)
class _Dispatched:
    step: object
    load: StepLoad
    since: float
    """Time at which the step was dispatched, in seconds of the monotonic clock."""
    predicted: float | None
    bound: float | None
    """Seconds to which other zones should keep the step; None if no zone bounded it."""


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
        """Time at which the last step ended, if the engine had work then."""

    def dispatch(self, step: object, load: StepLoad, bound: float | None, now: float) -> None:
        """Notes a step that was just planned.

        Args:
            step: any object that identifies the step.
            load: load of the step.
            bound: seconds to which other zones should keep the step; None if no zone bounded it.
            now: current time in seconds of the monotonic clock.
        """
        self._dispatched.append(_Dispatched(step, load, now, self._times.predict(load), bound))

    def complete(self, step: object, now: float, *, is_busy: bool) -> None:
        """Learns from a step that has ended. Of a step that was not dispatched here, only the end time is noted.

        Args:
            step: the object that identifies the step.
            now: time at which the step ended, in seconds of the monotonic clock.
            is_busy: whether the engine still has running requests.
        """
        if self._dispatched and self._dispatched[0].step is step:
            ended = self._dispatched.popleft()
            self._learn(ended, now - self._begin_of(ended))
        self._busy_since = now if is_busy else None

    def clear(self) -> None:
        """Drops all steps, because no zone has a latency target any more."""
        self._dispatched.clear()

    def seconds_left(self, now: float) -> float:
        """Returns the predicted seconds until all steps in flight have ended."""
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
        # Ignore steps that stall for a reason other than their load, because no margin helps against them.
        if 0.0 < seconds <= SURPRISE * predicted:
            self._margin.observe(seconds / predicted)
