"""How long requests wait: until they are scheduled, and until their first token.

Both durations count from vLLM's ``arrival_time``. So they include the time between the API server and the engine core,
and in the engine core's input queue, which is read between two steps; vLLM's own queue time excludes those. The arrival
time is of the wall clock, the only one that two processes share. It is read once, when the request is added, and
converted to the monotonic clock: later changes of the wall clock have no effect, and if it was set back meanwhile, the
transit time counts as zero.
"""

import time
from collections.abc import Sequence

from vllm.v1.request import Request

from tenantzone_runtime.zones.zone import Zone


def note_arrival(request: Request, now: float) -> None:
    """Set a request's arrival time on the monotonic clock."""
    request.arrived = now - max(0.0, time.time() - request.arrival_time)


class Latencies:
    """Measures how long requests wait; a step pays only for requests that have just been admitted."""

    def __init__(self) -> None:
        self._tokenless: list[tuple[Request, Zone]] = []
        """Admitted requests without their first token."""

    def scheduled(self, request: Request, zone: Zone, now: float) -> None:
        """Count the queue time of a request that was admitted for the first time."""
        zone.counters.queue_time.observe(now - request.arrived)
        self._tokenless.append((request, zone))

    def after_output(self) -> Sequence[tuple[Zone, float]]:
        """Count the time to first token of requests that have just got it; called when a step's output is made.

        Returns:
            The requests' zones, each with the seconds to first token.
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
