"""Measures requests' queue time and time to first token.

Both times start at vLLM's ``arrival_time``. So, unlike vLLM's queue time, both include the transit from the API server
to the engine core and the wait in the engine core's input queue, which the engine core reads between two steps. vLLM
reads the arrival time from the wall clock. ``note_arrival`` converts it to the monotonic clock when the request is
added, so that later changes of the wall clock have no effect. If the wall clock was set back between arrival and
conversion, the transit time counts as zero.
"""

import time
from collections.abc import Sequence

from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.requests import state_of
from tenantzone_runtime.zones.model.zone import Zone


def note_arrival(request: Request, now: float) -> None:
    """Set a request's arrival time, converted to the monotonic clock, in seconds."""
    state_of(request).arrived = now - max(0.0, time.time() - request.arrival_time)


class Latencies:
    """Measures queue times and times to first token. The cost per step depends only on requests without a token."""

    def __init__(self) -> None:
        self._tokenless: list[tuple[Request, Zone]] = []
        """Admitted requests that have not generated their first token yet."""

    def scheduled(self, request: Request, zone: Zone, now: float) -> None:
        """Count the queue time of a request that has just been admitted for the first time."""
        zone.counters.queue_time.observe(now - state_of(request).arrived)
        self._tokenless.append((request, zone))

    def after_output(self) -> Sequence[tuple[Zone, float]]:
        """Count the time to first token of requests that got their first token in the last step. Call after each step.

        Returns:
            The zone and the time to first token in seconds, for each such request.
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
