"""Counts what tenants' grammars take of the engine's steps over time.

A grammar that takes a little less than a step lets it would slow each step for as long as its answer is written, and
the next answer's goes on. So what a tenant's grammars take beyond the usual in a step is owed, and paid off as time
passes: a leaky bucket (Turner, "New directions in communications", 1986).
"""

from collections.abc import Mapping
from typing import Final

_USUAL_SECONDS: Final = 0.05
"""Of processors, that a tenant's grammars take in one step, and owe nothing for."""
_USUAL_OF_EACH_SECONDS: Final = 0.002
"""The same for each of its answers that have a form, where all of them come to more."""


class GrammarDebts:
    """What tenants owe.

    Args:
        limit_seconds: of processors, that a tenant may owe.
        paid_per_second: of these, paid off in each second that passes.
    """

    def __init__(self, limit_seconds: float = 5.0, paid_per_second: float = 0.1) -> None:
        self._limit_seconds = limit_seconds
        self._paid_per_second = paid_per_second
        self._owed: dict[str, float] = {}
        """By tenant, when that was last counted."""
        self._counted = 0.0

    def add(self, taken: Mapping[str, tuple[float, int]], now: float) -> None:
        """Add one step.

        Args:
            taken: by tenant, seconds of processors, and for how many answers.
            now: seconds, of a clock that does not go back.
        """
        paid, self._counted = self._paid(now), now
        if self._owed:
            self._owed = {tenant: owed - paid for tenant, owed in self._owed.items() if owed > paid}
        for tenant, (seconds, answers) in taken.items():
            beyond = seconds - max(_USUAL_SECONDS, answers * _USUAL_OF_EACH_SECONDS)
            if beyond > 0.0:
                self._owed[tenant] = self._owed.get(tenant, 0.0) + beyond

    def is_too_much(self, tenant: str, now: float) -> bool:
        """Whether a tenant owes more than it may."""
        return self._owed.get(tenant, 0.0) - self._paid(now) > self._limit_seconds

    def _paid(self, now: float) -> float:
        """By each tenant, since that was last counted."""
        return (now - self._counted) * self._paid_per_second
