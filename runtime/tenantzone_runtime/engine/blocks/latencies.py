"""Measures requests' queue time and time to first token.

Both start at vLLM's ``arrival_time``. So, unlike vLLM's queue time, they include the transit from the API server to the
engine core and the wait in the engine core's input queue, which is read between two steps. The arrival time is on the
wall clock, because two processes share no other clock. It is converted to the monotonic clock once, when the request is
added, so later changes of the wall clock have no effect. If the wall clock was set back before that, the transit time
counts as zero.
"""

import time
from collections.abc import Sequence

from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.requests import state_of
from tenantzone_runtime.zones.model.zone import Zone


def note_arrival(request: Request, now: float) -> None:
    """Set a request's arrival time on the monotonic clock."""
    state_of(request).arrived = now - max(0.0, time.time() - request.arrival_time)


class Latencies:
    """Measures queue times and times to first token. The cost per step depends only on newly admitted requests."""

    def __init__(self) -> None:
        self._tokenless: list[tuple[Request, Zone]] = []
        """Admitted requests without their first token."""

    def scheduled(self, request: Request, zone: Zone, now: float) -> None:
        """Count the queue time of a request that was admitted for the first time."""
        zone.counters.queue_time.observe(now - state_of(request).arrived)
        self._tokenless.append((request, zone))

    def after_output(self) -> Sequence[tuple[Zone, float]]:
        """Count the time to first token of requests whose first token is in a step's output, after each step.

        Returns:
            Pairs of a request's zone and its time to first token in seconds.
        """
        if not self._tokenless:
            return ()
        now = time.monotonic()
        tokenless, came = [], []
        for request, zone in self._tokenless:
            if request.num_output_tokens:
                zone.counters.time_to_first_token.observe(now - state_of(request).arrived)
                came.append((zone, now - state_of(request).arrived))
            elif not request.is_finished():
                tokenless.append((request, zone))
        self._tokenless = tokenless
        return came
