"""Remembers which tenants' queues are full, so that the frontend can refuse requests without asking the engine."""

import time
from collections.abc import Callable

from tenantzone_runtime.frontend.responses.answers import Refusal


class FullQueues:
    """Refuses requests of a tenant while the tenant's queue is full, according to the engine's last refusal.

    The engine can refuse a request only after the request was tokenized, on a thread that all tenants share. A refusal
    by the frontend saves that work.

    Args:
        clock: returns a monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full: dict[str, tuple[float, Refusal]] = {}
        """For each tenant, the time until which its queue is full, and the engine's refusal."""

    def note(self, tenant: str, refusal: Refusal, seconds: float) -> None:
        """Record that the engine refused a request of the tenant, and will refuse further requests for ``seconds``."""
        if seconds > 0:
            now = self._clock()
            self._full = {name: known for name, known in self._full.items() if known[0] > now}
            self._full[tenant] = now + seconds, refusal

    def forget(self) -> None:
        """Forget all full queues. Called when a new config may have changed the limits of the queues."""
        self._full = {}

    def check(self, tenant: str) -> None:
        """Refuse a request if the tenant's queue is full.

        Raises:
            Refusal: the queue is full. The message is that of the engine's refusal.
        """
        until, refusal = self._full.get(tenant, (0.0, None))
        if refusal is not None and self._clock() < until:
            raise Refusal(429, "full_queue", str(refusal), headers={**refusal.headers, "connection": "close"})
