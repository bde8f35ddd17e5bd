"""Remembers which tenants' queues the engine has just found full, so that their next requests cost it nothing."""

import time
from collections.abc import Callable

from tenantzone_runtime.door.answers import Refusal


class FullQueues:
    """Refuses the requests of tenants of whom the engine has just refused one, for as long as it has said.

    A request is refused in the engine after its text was made tokens, on a thread that all tenants share. While nothing
    of what waits can have been served, the answer is known before.

    Args:
        clock: seconds, that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full: dict[str, tuple[float, Refusal]] = {}
        """Until when, and what the engine said, by tenant."""

    def note(self, tenant: str, refusal: Refusal, seconds: float) -> None:
        """Take note that the engine has refused a request, and will refuse others for so long."""
        if seconds > 0:
            now = self._clock()
            self._full = {name: known for name, known in self._full.items() if known[0] > now}
            self._full[tenant] = now + seconds, refusal

    def forget(self) -> None:
        """Know of none any more: queues may be bounded otherwise now."""
        self._full = {}

    def check(self, tenant: str) -> None:
        """Check that a tenant's queue is not known to be full.

        Raises:
            Refusal: it is; as the engine said it.
        """
        until, refusal = self._full.get(tenant, (0.0, None))
        if refusal is not None and self._clock() < until:
            raise Refusal(429, "full_queue", str(refusal), headers={**refusal.headers, "connection": "close"})
