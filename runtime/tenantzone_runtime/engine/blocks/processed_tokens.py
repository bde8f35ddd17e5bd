"""Counts how the tokens of vLLM's requests are processed, from the positions that vLLM tracks.

``num_computed_tokens`` advances when a step is scheduled, and is set back if the step's drafts are rejected. It is
ahead of the confirmed position by ``num_in_flight_tokens``, except for stale tokens from before the request's last
preemption. Computed tokens of running requests are read periodically, so that steps only spend time on requests that
begin and on drafts.
"""

from collections import deque

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.requests import state_of, zone_of


class ProcessedTokens:
    """Counts the processed tokens of one engine's requests, for their zones."""

    def __init__(self) -> None:
        self._begun: list[Request] = []
        """Requests admitted in this step."""
        self._drafts: deque[tuple[SchedulerOutput, dict[str, int]]] = deque()
        """Steps in flight with drafts, oldest first, with the number of drafted tokens by request id."""
        self._unverified: dict[str, int] = {}
        """Number of unverified drafted tokens, by request id, in the step whose output is being processed."""
        self._reached: dict[str, int] = {}
        """Position of each request in that step after its drafts were verified, by request id."""

    def admitted(self, request: Request) -> None:
        """Record a request that begins to compute in the step that is being scheduled."""
        if zone_of(request) is not None:
            self._begun.append(request)

    def adopted(self, request: Request) -> None:
        """Record a running request that has just got a zone. Earlier tokens are not counted."""
        state_of(request).progress.begin_uncounted(_certain(request))

    def scheduled(self, output: SchedulerOutput) -> None:
        """Count the initial tokens of requests that were admitted in a step, and record its drafts."""
        for request in self._begun:
            zone, scheduled = zone_of(request), output.num_scheduled_tokens.get(request.request_id)
            if zone is None or scheduled is None:
                # The request's admission was revoked in the same step.
                continue
            position = request.num_computed_tokens - scheduled
            # vLLM may recompute the end of a hit for layers with a window.
            hits = min(state_of(request).hit_tokens, position)
            state_of(request).progress.begin_stay(hits, position - hits, zone.counters)
        self._begun.clear()
        if output.scheduled_spec_decode_tokens:
            drafts = {name: len(tokens) for name, tokens in output.scheduled_spec_decode_tokens.items()}
            self._drafts.append((output, drafts))

    def step_ends(self, output: SchedulerOutput) -> None:
        """Record that the output of a step is about to be processed."""
        self._unverified = self._drafts.popleft()[1] if self._drafts and self._drafts[0][0] is output else {}
        self._reached.clear()

    def drafts_verified(self, request: Request, rejected: int) -> None:
        """Count a request's rejected drafts in the ending step, unless it was preempted or ended before that."""
        zone = zone_of(request)
        if self._unverified.pop(request.request_id, 0) and zone is not None:
            zone.counters.rejected_draft_tokens += rejected
            self._reached[request.request_id] = request.num_computed_tokens

    def count(self, request: Request) -> None:
        """Count the tokens that a running request has computed since the last call."""
        zone = zone_of(request)
        if zone is not None:
            state_of(request).progress.computed_to(_certain(request), zone.counters)

    def stay_ends(self, request: Request) -> None:
        """Count a request's tokens up to its end or preemption. Must be called before vLLM resets its position."""
        drafts = sum(of_step.pop(request.request_id, 0) for _, of_step in self._drafts)
        # Since 0.33, vLLM sets the position back by accepted drafts beyond the end of the answer.
        position = max(request.num_computed_tokens, self._reached.pop(request.request_id, 0))
        zone = zone_of(request)
        if zone is not None:
            state_of(request).progress.end_stay(position - drafts, drafts, zone.counters)


def _certain(request: Request) -> int:
    """Returns a running request's position without the tokens of steps in flight."""
    in_flight = request.num_in_flight_tokens - request.num_stale_output_tokens
    return int(request.num_computed_tokens - in_flight)
