"""Reads and sets the attributes that the runtime adds to vLLM's requests."""

from typing import Final

from vllm.v1.engine import FinishReason
from vllm.v1.request import Request

from tenantzone_runtime.zones.model.counters import Outcome
from tenantzone_runtime.zones.model.fair_queue import OUTPUT
from tenantzone_runtime.zones.model.users import NO_USER
from tenantzone_runtime.zones.model.zone import Zone


def zone_of(request: Request) -> Zone | None:
    """Returns the zone that a request was bound to on arrival, or None if no zone was declared at that time."""
    zone: Zone | None = getattr(request, "zone", None)
    return zone


def user_of(request: Request) -> str:
    """Returns the pseudonymous id of the tenant's user who sent a request, or ``NO_USER`` if it is unknown."""
    user: str = getattr(request, "user", NO_USER)
    return user


def note_admission(request: Request, zone: Zone) -> None:
    """Record in a request how many purges of its zone have begun. A preempted request keeps the earlier number."""
    if request.num_preemptions == 0:
        request.purges = zone.purges


def may_be_cached(request: Request, zone: Zone) -> bool:
    """Returns whether a request's blocks may be cached.

    The zone must allow caching, and no purge of the zone may have begun since the request was admitted.
    """
    return not zone.spec.retention.no_store and getattr(request, "purges", 0) == zone.purges


def charge(request: Request, zone: Zone, cost: float) -> None:
    """Charge the cost of service to a request's zone and, if the zone tracks users, also to the request's user."""
    zone.account.charge(cost)
    if zone.users is not None:
        zone.users.charge(user_of(request), cost)


def count_generated(request: Request, zone: Zone) -> None:
    """Count and charge the tokens that a request has generated since the last call."""
    tokens = request.num_output_tokens - getattr(request, "counted_tokens", 0)
    if tokens:
        request.counted_tokens = request.num_output_tokens
        zone.counters.generation_tokens += tokens
        zone.counters.computed_tokens += tokens
        charge(request, zone, OUTPUT * tokens)


def enter_queue(request: Request, zone: Zone, now: float) -> None:
    """Add a request that has just arrived to the count of its zone's waiting requests."""
    request.queued_tokens = request.num_prompt_tokens
    zone.queue.enter(request.queued_tokens, now)


def leave_queue(request: Request, zone: Zone, now: float, *, is_served: bool) -> None:
    """Remove a scheduled or ended request from the count of its zone's waiting requests. Idempotent."""
    tokens = getattr(request, "queued_tokens", None)
    if tokens is not None:
        request.queued_tokens = None
        zone.queue.leave(tokens, now, is_served=is_served)


_OUTCOMES: Final[dict[FinishReason, Outcome]] = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.ABORT: "abort",
    FinishReason.ERROR: "error",
}


def outcome_of(request: Request) -> Outcome:
    """Returns how a request ended, as a label for the counters."""
    return _OUTCOMES.get(request.get_finished_reason(), "other")
