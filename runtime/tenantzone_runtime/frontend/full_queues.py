"""Remembers which tenants' queues the engine has just found full, so that it is not asked again for a moment."""

import time
from collections.abc import Callable

from tenantzone_runtime.frontend.answers import Refusal


class FullQueues:
    """Refuses requests of tenants whose last request the engine has refused, for the time that it gave.

    The engine refuses a request after it was tokenized, on a thread that all tenants share. As long as none of the
    waiting requests can have been served, the answer is known in advance.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full: dict[str, tuple[float, Refusal]] = {}
        """For each tenant: until when its queue is full, and the engine's refusal."""

    def note(self, tenant: str, refusal: Refusal, seconds: float) -> None:
        """Note that the engine has refused a request, and will refuse others for ``seconds``."""
        if seconds > 0:
            now = self._clock()
            self._full = {name: known for name, known in self._full.items() if known[0] > now}
            self._full[tenant] = now + seconds, refusal

    def forget(self) -> None:
        """Forget all full queues: their bounds may have changed."""
        self._full = {}

    def check(self, tenant: str) -> None:
        """Check that a tenant's queue is not known to be full.

        Raises:
            Refusal: it is full; this is the engine's refusal.
        """
        until, refusal = self._full.get(tenant, (0.0, None))
        if refusal is not None and self._clock() < until:
            raise Refusal(429, "full_queue", str(refusal), headers={**refusal.headers, "connection": "close"})
