"""Counts cached, loaded, computed and drafted tokens of requests, from the positions that vLLM tracks.

vLLM advances ``num_computed_tokens`` when it schedules a step, and sets it back if the step's drafts are rejected. So
``num_computed_tokens`` is ahead of the confirmed position by ``num_in_flight_tokens``, less the stale tokens from
before the request's last preemption. Computed tokens of running requests are read periodically instead of in each step,
so that a step only spends time on requests that begin and on drafts.
"""

from collections import deque

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.requests import state_of, zone_of


class ProcessedTokens:
    """Counts the processed tokens of one engine's requests, by zone."""

    def __init__(self) -> None:
        self._begun: list[Request] = []
        """Requests admitted in this step."""
        self._drafts: deque[tuple[SchedulerOutput, dict[str, int]]] = deque()
        """Steps in flight that contain drafts, oldest first, each with the number of drafted tokens by request id."""
        self._unverified: dict[str, int] = {}
        """Number of unverified drafted tokens, by request id, in the step whose output is being processed."""
        self._reached: dict[str, int] = {}
        """By request id, the position after verification, for requests with drafts in the step being processed."""

    def admitted(self, request: Request) -> None:
        """Record a request that begins to compute in the step that is being scheduled."""
        if zone_of(request) is not None:
            self._begun.append(request)

    def adopted(self, request: Request) -> None:
        """Record a running request that has just been assigned to a zone. Earlier tokens are not counted."""
        state_of(request).progress.begin_uncounted(_certain(request))

    def scheduled(self, output: SchedulerOutput) -> None:
        """Count the cached and loaded tokens of requests admitted in a step, and record the step's drafts."""
        for request in self._begun:
            zone, scheduled = zone_of(request), output.num_scheduled_tokens.get(request.request_id)
            if zone is None or scheduled is None:
                # The request's admission was revoked in this step.
                continue
            position = request.num_computed_tokens - scheduled
            # For layers with a window, vLLM may recompute the end of a hit.
            hits = min(state_of(request).hit_tokens, position)
            state_of(request).progress.begin_stay(hits, position - hits, zone.counters)
        self._begun.clear()
        if output.scheduled_spec_decode_tokens:
            drafts = {name: len(tokens) for name, tokens in output.scheduled_spec_decode_tokens.items()}
            self._drafts.append((output, drafts))

    def step_ends(self, output: SchedulerOutput) -> None:
        """Record that vLLM is about to process the output of a step."""
        self._unverified = self._drafts.popleft()[1] if self._drafts and self._drafts[0][0] is output else {}
        self._reached.clear()

    def drafts_verified(self, request: Request, rejected: int) -> None:
        """Count a request's drafts that a step has rejected, unless the request was preempted or ended before."""
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
        """Count a request's tokens up to its end or preemption. Call this before vLLM resets the request's position."""
        drafts = sum(of_step.pop(request.request_id, 0) for _, of_step in self._drafts)
        # Since 0.33, vLLM sets the position back by the accepted drafts that are beyond the end of the answer.
        position = max(request.num_computed_tokens, self._reached.pop(request.request_id, 0))
        zone = zone_of(request)
        if zone is not None:
            state_of(request).progress.end_stay(position - drafts, drafts, zone.counters)


def _certain(request: Request) -> int:
    """Returns the number of tokens that completed steps have computed for a running request."""
    in_flight = request.num_in_flight_tokens - request.num_stale_output_tokens
    return int(request.num_computed_tokens - in_flight)
