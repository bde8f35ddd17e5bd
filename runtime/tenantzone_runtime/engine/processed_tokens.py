"""Counts how the tokens of vLLM's requests are processed, from the positions that vLLM itself keeps.

``num_computed_tokens`` moves on when a step is scheduled, and back when drafts of it turn out wrong. Steps in flight
are ahead of what is certain by ``num_in_flight_tokens``. Stale ones among these belong to a stay before the request's
last preemption. So what running requests have computed is read from time to time, and no step pays for it. A step pays
for requests that begin with it, and for drafts.
"""

from collections import deque

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones.processed_tokens import Progress


class ProcessedTokens:
    """Counts the processed tokens of one engine's requests, for their zones."""

    def __init__(self) -> None:
        self._begun: list[Request] = []
        """Admitted in this step."""
        self._drafts: deque[tuple[SchedulerOutput, dict[str, int]]] = deque()
        """Steps in flight with drafts, the oldest first: how many tokens were drafted for each request, by id."""
        self._judged: dict[str, int] = {}
        """The same of the step whose output is being made, without those whose drafts have been judged."""
        self._reached: dict[str, int] = {}
        """Of that step: the positions of requests when their drafts were judged, by id."""

    def admitted(self, request: Request) -> None:
        """Note a request that begins to compute with the step that is being scheduled."""
        if zone_of(request) is not None:
            self._begun.append(request)

    def adopted(self, request: Request) -> None:
        """Note a request that runs and whose zone has just come: what it has computed before is not counted."""
        progress_of(request).begin_uncounted(_certain(request))

    def scheduled(self, output: SchedulerOutput) -> None:
        """Count what requests begin with that were admitted in a step, and note its drafts."""
        for request in self._begun:
            zone, scheduled = zone_of(request), output.num_scheduled_tokens.get(request.request_id)
            if zone is None or scheduled is None:
                # Its place was taken back in the same step.
                continue
            position = request.num_computed_tokens - scheduled
            # Of what was found vLLM may compute the end once more, for layers with a window.
            hits = min(getattr(request, "hit_tokens", 0), position)
            progress_of(request).begin_stay(hits, position - hits, zone.counters)
        self._begun.clear()
        if output.scheduled_spec_decode_tokens:
            drafts = {name: len(tokens) for name, tokens in output.scheduled_spec_decode_tokens.items()}
            self._drafts.append((output, drafts))

    def step_ends(self, output: SchedulerOutput) -> None:
        """Note that the output of a step is about to be made."""
        self._judged = self._drafts.popleft()[1] if self._drafts and self._drafts[0][0] is output else {}
        self._reached.clear()

    def drafts_judged(self, request: Request, rejected: int) -> None:
        """Count the drafts of the ending step that were rejected for a request, unless its stay has ended before."""
        zone = zone_of(request)
        if self._judged.pop(request.request_id, 0) and zone is not None:
            zone.counters.rejected_draft_tokens += rejected
            self._reached[request.request_id] = request.num_computed_tokens

    def count(self, request: Request) -> None:
        """Count what a running request has computed since the last call."""
        zone = zone_of(request)
        if zone is not None:
            progress_of(request).computed_to(_certain(request), zone.counters)

    def stay_ends(self, request: Request) -> None:
        """Count a request to its end, or to its preemption; to be called before vLLM sets its position back."""
        drafts = sum(of_step.pop(request.request_id, 0) for _, of_step in self._drafts)
        # Since 0.33 vLLM sets the position back over drafts that were right and lie beyond the end of the answer.
        position = max(request.num_computed_tokens, self._reached.pop(request.request_id, 0))
        zone = zone_of(request)
        if zone is not None:
            progress_of(request).end_stay(position - drafts, drafts, zone.counters)


def progress_of(request: Request) -> Progress:
    """How far a request has come."""
    progress: Progress | None = getattr(request, "progress", None)
    if progress is None:
        progress = request.progress = Progress()
    return progress


def _certain(request: Request) -> int:
    """The position up to which steps have ended that computed a running request."""
    in_flight = request.num_in_flight_tokens - request.num_stale_output_tokens
    return int(request.num_computed_tokens - in_flight)
