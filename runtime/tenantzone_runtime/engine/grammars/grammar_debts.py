"""Accounts for the CPU time that tenants' grammars take from the engine's steps.

A grammar that stays just below the limit per step would slow down each step while its answer is generated, and the next
answer's grammar could continue that. So CPU time beyond the usual amount per step is a debt of the tenant, which is
paid off as time passes: a leaky bucket (Turner, "New directions in communications", 1986).
"""

from collections.abc import Mapping
from typing import Final

_USUAL_SECONDS: Final = 0.05
"""CPU time in seconds per step that a tenant's grammars may take without debt."""
_USUAL_OF_EACH_SECONDS: Final = 0.002
"""CPU time in seconds per step and structured answer that is free of debt, if the sum exceeds ``_USUAL_SECONDS``."""


class GrammarDebts:
    """The debts of tenants.

    Args:
        limit_seconds: the maximum debt of a tenant that may use grammars, in seconds of CPU time.
        paid_per_second: the seconds of CPU time that are paid off per second.
    """

    def __init__(self, limit_seconds: float = 5.0, paid_per_second: float = 0.1) -> None:
        self._limit_seconds = limit_seconds
        self._paid_per_second = paid_per_second
        self._owed: dict[str, float] = {}
        """Debts in seconds of CPU time by tenant, as of the last count."""
        self._counted = 0.0

    def add(self, taken: Mapping[str, tuple[float, int]], now: float) -> None:
        """Add the use of one step.

        Args:
            taken: the CPU time in seconds and the number of answers, by tenant.
            now: the monotonic time in seconds.
        """
        paid, self._counted = self._paid(now), now
        if self._owed:
            self._owed = {tenant: owed - paid for tenant, owed in self._owed.items() if owed > paid}
        for tenant, (seconds, answers) in taken.items():
            beyond = seconds - max(_USUAL_SECONDS, answers * _USUAL_OF_EACH_SECONDS)
            if beyond > 0.0:
                self._owed[tenant] = self._owed.get(tenant, 0.0) + beyond

    def is_too_much(self, tenant: str, now: float) -> bool:
        """Returns whether a tenant owes more than the limit."""
        return self._owed.get(tenant, 0.0) - self._paid(now) > self._limit_seconds

    def _paid(self, now: float) -> float:
        """Returns the seconds that each tenant has paid off since the last count."""
        return (now - self._counted) * self._paid_per_second
