"""Checks that no request starves: limits the steps without progress, and the steps until all requests have ended.

- While a request runs, or a request waits that can be served, at most ``MAX_EMPTY_STEPS`` consecutive steps compute
  nothing. A step is empty if each running request was skipped in the previous step, because requests that can't
  continue are preempted and do not return in the same step. The next step admits a request, because unused reservations
  never block a servable request while nothing runs. The engine may only wait, until the next upkeep, for overdue blocks
  of a loan that are still cached.
- After the last request has been sent, the remaining requests end within twice the steps that they would take one after
  the other, counting only steps that compute something. In each step some request makes progress that is not lost.
  Recomputation of lost work may take half of the step's budget of prompt tokens from this request.
"""

from bench.simulator.checks import Violation
from bench.simulator.engine import Engine

MAX_EMPTY_STEPS = 3


class Liveness:
    """Checks the liveness of one engine after the other."""

    def __init__(self) -> None:
        self.max_steps_to_end = 0
        """Maximum number of steps from the last request's arrival to the end; 0 before that arrival."""
        self._steps_to_end = 0
        self._empty_steps = 0

    def after_step(self, engine: Engine, elapsed: float, *, is_load_over: bool) -> None:
        """Check the engine after a step.

        Args:
            engine: the engine.
            elapsed: the time of the step in simulated seconds; 0 if nothing was computed.
            is_load_over: whether all requests have been sent.

        Raises:
            Violation: a bound is exceeded.
        """
        self._empty_steps = 0 if elapsed or engine.waits_for_a_config else self._empty_steps + 1
        if self._empty_steps > MAX_EMPTY_STEPS:
            raise Violation(f"liveness: {len(engine.waiting)} requests wait, and {self._empty_steps} steps were empty")
        if is_load_over:
            self._count(engine, elapsed)

    def _count(self, engine: Engine, elapsed: float) -> None:
        if not self.max_steps_to_end:
            left = [*engine.running, *engine.waiting]
            self.max_steps_to_end = 1 + 2 * sum(engine.model.steps_for(request) for request in left)
        self._steps_to_end += elapsed > 0
        if self._steps_to_end > self.max_steps_to_end:
            raise Violation(f"liveness: not at the end {self._steps_to_end} steps after the last request came")
