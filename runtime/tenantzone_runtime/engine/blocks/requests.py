"""The runtime's state of each of vLLM's requests.

A vLLM request itself gets only the two attributes that the arbiter reads: ``zone`` and ``peak`` (see
``zones.engine.Work``). All other state of a request is in its `ZoneRequest`.
"""

from dataclasses import dataclass, field
from typing import Final

from vllm.v1.engine import FinishReason
from vllm.v1.request import Request

from tenantzone_runtime.engine.errors import BindingError
from tenantzone_runtime.zones.model.counters import Outcome
from tenantzone_runtime.zones.model.fair_queue import OUTPUT
from tenantzone_runtime.zones.model.processed_tokens import Progress
from tenantzone_runtime.zones.model.users import NO_USER
from tenantzone_runtime.zones.model.zone import Zone, ZoneSpec


@dataclass(slots=True)
class ZoneRequest:
    """The runtime's state of one request."""

    user: str = NO_USER
    """Pseudonymous id of the tenant's user who sent the request."""
    refusal: BindingError | None = None
    """The error with which the scheduler refused the request, or None if it did not refuse the request."""
    arrived: float = 0.0
    """Time of arrival in seconds on the monotonic clock."""
    place: int | None = None
    """Place in the order of arrival, or None before the request has entered a queue."""
    queued_tokens: int | None = None
    """Number of prompt tokens for which the request counts in its zone's queue, or None if it is not in the queue."""
    purges: int = 0
    """Number of purges of the zone that had begun when the request was first admitted."""
    hit_tokens: int = 0
    """Number of prompt tokens found in the prefix cache at the last admission."""
    loaded_tokens: int = 0
    """Number of prompt tokens that are being loaded from a tier."""
    counted_tokens: int = 0
    """Number of generated tokens that were counted and charged."""
    progress: Progress = field(default_factory=Progress)
    last_token: tuple[float, int, ZoneSpec | None] = (0.0, 0, None)
    """Of the last output: its monotonic time in seconds, the number of generated tokens and the spec at that time."""


def state_of(request: Request) -> ZoneRequest:
    """Returns the runtime's state of a request, and creates it on the first call."""
    try:
        state: ZoneRequest = request.zone_request
    except AttributeError:
        state = request.zone_request = ZoneRequest()
    return state


def zone_of(request: Request) -> Zone | None:
    """Returns the zone that a request was bound to on arrival, or None if no zone was declared at that time."""
    zone: Zone | None = getattr(request, "zone", None)
    return zone


def user_of(request: Request) -> str:
    """Returns the pseudonymous id of the tenant's user who sent a request, or ``NO_USER`` if it is unknown."""
    return state_of(request).user


def note_admission(request: Request, zone: Zone) -> None:
    """Record in a request how many purges of its zone have begun. A preempted request keeps the earlier number."""
    if request.num_preemptions == 0:
        state_of(request).purges = zone.purges


def may_be_cached(request: Request, zone: Zone) -> bool:
    """Returns whether a request's blocks may be cached.

    The zone must allow caching, and no purge of the zone may have begun since the request was admitted.
    """
    return not zone.spec.retention.no_store and state_of(request).purges == zone.purges


def charge(request: Request, zone: Zone, cost: float) -> None:
    """Charge the cost of service to a request's zone and, if the zone tracks users, also to the request's user."""
    zone.account.charge(cost)
    if zone.users is not None:
        zone.users.charge(user_of(request), cost)


def count_generated(request: Request, zone: Zone) -> None:
    """Count and charge the tokens that a request has generated since the last call."""
    state = state_of(request)
    tokens = request.num_output_tokens - state.counted_tokens
    if tokens:
        state.counted_tokens = request.num_output_tokens
        zone.counters.generation_tokens += tokens
        zone.counters.computed_tokens += tokens
        charge(request, zone, OUTPUT * tokens)


def enter_queue(request: Request, zone: Zone, now: float) -> None:
    """Add a request that has just arrived to the count of its zone's waiting requests."""
    tokens = state_of(request).queued_tokens = int(request.num_prompt_tokens)
    zone.queue.enter(tokens, now)


def leave_queue(request: Request, zone: Zone, now: float, *, is_served: bool) -> None:
    """Remove a scheduled or ended request from the count of its zone's waiting requests. Idempotent."""
    state = state_of(request)
    if state.queued_tokens is not None:
        zone.queue.leave(state.queued_tokens, now, is_served=is_served)
        state.queued_tokens = None


_OUTCOMES: Final[dict[FinishReason, Outcome]] = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.ABORT: "abort",
    FinishReason.ERROR: "error",
}


def outcome_of(request: Request) -> Outcome:
    """Returns how a request ended, as a label for the counters."""
    return _OUTCOMES.get(request.get_finished_reason(), "other")
