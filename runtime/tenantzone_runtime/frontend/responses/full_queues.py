"""Remembers which tenants' queues are full, so that further requests are refused without asking the engine."""

import time
from collections.abc import Callable

from tenantzone_runtime.frontend.responses.answers import Refusal


class FullQueues:
    """Refuses requests of a tenant for as long as the engine has announced that the tenant's queue stays full.

    The engine refuses a request only after it was tokenized, on a thread that all tenants share. Until one of the
    waiting requests can have been served, the answer is known in advance.

    Args:
        clock: returns a monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full: dict[str, tuple[float, Refusal]] = {}
        """The time until which each tenant's queue is full, and the engine's refusal, by tenant."""

    def note(self, tenant: str, refusal: Refusal, seconds: float) -> None:
        """Note that the engine has refused a request, and will refuse others for ``seconds``."""
        if seconds > 0:
            now = self._clock()
            self._full = {name: known for name, known in self._full.items() if known[0] > now}
            self._full[tenant] = now + seconds, refusal

    def forget(self) -> None:
        """Forget all full queues, because their limits may have changed."""
        self._full = {}

    def check(self, tenant: str) -> None:
        """Check that a tenant's queue is not known to be full.

        Raises:
            Refusal: the queue is full; the message is that of the engine's refusal.
        """
        until, refusal = self._full.get(tenant, (0.0, None))
        if refusal is not None and self._clock() < until:
            raise Refusal(429, "full_queue", str(refusal), headers={**refusal.headers, "connection": "close"})
