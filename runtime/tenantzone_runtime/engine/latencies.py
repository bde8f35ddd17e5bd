"""How long requests wait: until they are scheduled, and until their first token is there.

Both count from vLLM's ``arrival_time``, so that what a request spends on its way from the API server and in the engine
core's input queue, which is read between two steps, is a part of them; vLLM's own queue time leaves that out. That time
is the wall clock's, the only one that two processes share. It is looked at once, when the request is added, and turned
into a time of the monotonic clock: what the wall clock does later changes nothing, and if it was set back meanwhile the
way counts as none.
"""

import time
from collections.abc import Sequence

from vllm.v1.request import Request

from tenantzone_runtime.zones.zone import Zone


def note_arrival(request: Request, now: float) -> None:
    """Note on a request when it arrived, as a time of the monotonic clock."""
    request.arrived = now - max(0.0, time.time() - request.arrival_time)


class Latencies:
    """Counts how long requests wait; a step pays for requests that have just been admitted, and for no other."""

    def __init__(self) -> None:
        self._tokenless: list[tuple[Request, Zone]] = []
        """Admitted, and still without their first token."""

    def scheduled(self, request: Request, zone: Zone, now: float) -> None:
        """Count the queue time of a request that was admitted for the first time."""
        zone.counters.queue_time.observe(now - request.arrived)
        self._tokenless.append((request, zone))

    def after_output(self) -> Sequence[tuple[Zone, float]]:
        """Count the time to first token of requests that have one now; to be called when a step's output is made.

        Returns:
            Zones of such requests, each with the seconds that it took.
        """
        if not self._tokenless:
            return ()
        now = time.monotonic()
        tokenless, came = [], []
        for request, zone in self._tokenless:
            if request.num_output_tokens:
                zone.counters.time_to_first_token.observe(now - request.arrived)
                came.append((zone, now - request.arrived))
            elif not request.is_finished():
                tokenless.append((request, zone))
        self._tokenless = tokenless
        return came
