"""No starvation: how long an engine may go without progress, and how many steps it may take to finish.

- At any time, while a request waits that can be served, or one runs, at most ``MAX_EMPTY_STEPS`` steps in a row compute
  nothing. A step is empty if each running request was skipped in the step before: requests that can't continue are
  preempted, and do not return in the same step. The next step admits a request, because when nothing runs, unused
  reservations hold up no request that could ever have its blocks. The engine only waits for a loan's due blocks that
  are merely cached, until the next upkeep.
- Once no more requests come, the remaining ones end within twice the steps that they would take one after the other,
  counting those in which something is computed. In each of them the work of some request is not lost; what is lost and
  computed again may take half of the step's budget of prompt tokens from it.
"""

from bench.simulator.checks import Violation
from bench.simulator.engine import Engine

MAX_EMPTY_STEPS = 3


class Liveness:
    """Follows one engine after the other."""

    def __init__(self) -> None:
        self.max_steps_to_end = 0
        """Since the last request came; 0 until it has."""
        self._steps_to_end = 0
        self._empty_steps = 0

    def after_step(self, engine: Engine, elapsed: float, *, is_load_over: bool) -> None:
        """A step was made.

        Args:
            engine: whose.
            elapsed: simulated seconds; 0: nothing was computed.
            is_load_over: whether no more requests come.

        Raises:
            Violation: a bound is passed.
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
