"""What the runtime keeps on vLLM's requests."""

from typing import Final

from vllm.v1.engine import FinishReason
from vllm.v1.request import Request

from tenantzone_runtime.zones.counters import Outcome
from tenantzone_runtime.zones.fair_queue import OUTPUT
from tenantzone_runtime.zones.users import NO_USER
from tenantzone_runtime.zones.zone import Zone


def zone_of(request: Request) -> Zone | None:
    """The zone that a request is bound to, which the scheduler sets on arrival; None if it came before any zone."""
    zone: Zone | None = getattr(request, "zone", None)
    return zone


def user_of(request: Request) -> str:
    """Who of its tenant sends a request, in a form that tells nothing of the name."""
    user: str = getattr(request, "user", NO_USER)
    return user


def note_admission(request: Request, zone: Zone) -> None:
    """Note how many purges of its zone have begun before a request that waits; one that was preempted had begun."""
    if request.num_preemptions == 0:
        request.purges = zone.purges


def may_be_cached(request: Request, zone: Zone) -> bool:
    """Whether what a request computes may be kept: the zone stores something, and no purge has begun since it began."""
    return not zone.spec.retention.no_store and getattr(request, "purges", 0) == zone.purges


def charge(request: Request, zone: Zone, cost: float) -> None:
    """Count service that a request was given, for its zone and within it."""
    zone.account.charge(cost)
    if zone.users is not None:
        zone.users.charge(user_of(request), cost)


def count_generated(request: Request, zone: Zone) -> None:
    """Count and charge to the zone what a request has generated since the last call."""
    tokens = request.num_output_tokens - getattr(request, "counted_tokens", 0)
    if tokens:
        request.counted_tokens = request.num_output_tokens
        zone.counters.generation_tokens += tokens
        zone.counters.computed_tokens += tokens
        charge(request, zone, OUTPUT * tokens)


def enter_queue(request: Request, zone: Zone, now: float) -> None:
    """Count a request that has just arrived among those of its zone that wait."""
    request.queued_tokens = request.num_prompt_tokens
    zone.queue.enter(request.queued_tokens, now)


def leave_queue(request: Request, zone: Zone, now: float, *, is_served: bool) -> None:
    """Count a request that is scheduled, or has ended, off those that wait; harmless if it is none of them."""
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
    """How a request ended, in the words of the counters."""
    return _OUTCOMES.get(request.get_finished_reason(), "other")
