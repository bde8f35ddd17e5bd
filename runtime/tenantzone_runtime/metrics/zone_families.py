"""Declares the metrics of each zone: of its blocks, its requests and the latencies of its requests."""

from collections.abc import Iterable
from typing import Final

from tenantzone_runtime.metrics.family import (
    Family,
    Type,
    of_zones,
    of_zones_by,
    without_zeros,
)
from tenantzone_runtime.metrics.figures import ZoneFigures
from tenantzone_runtime.metrics_levels import BASIC, DETAILED, FROM_DETAILED, FULL, LEVELS, Level
from tenantzone_runtime.zones.model.counters import STARVED_FOR, TAKEN_FOR
from tenantzone_runtime.zones.model.outcomes import TargetName
from tenantzone_runtime.zones.model.processed_tokens import COUNTERS, ProcessedAs

_TARGETS: Final[dict[TargetName, str]] = {"token_time": "tokenTime", "first_token": "firstToken"}
"""The names of latency targets in ``spec.latency``. They are the values of the label ``target``."""

_ALERTED_KINDS: Final[tuple[ProcessedAs, ...]] = ("computed_first", "recomputed")
"""Kinds of tokens whose series always exist, even with the value 0, because alerts use their rates."""


def _processed(zone: ZoneFigures, kinds: Iterable[ProcessedAs]) -> dict[ProcessedAs, int]:
    return {kind: getattr(zone.counters, COUNTERS[kind]) for kind in kinds}


_BLOCKS = (
    of_zones("gauge", "blocks_in_use", "KV-cache blocks that the zone's requests use.", lambda zone: zone.in_use),
    of_zones(
        "gauge", "blocks_cached", "KV-cache blocks kept for their prefix, used by no request.", lambda zone: zone.cached
    ),
    of_zones("gauge", "blocks_reserved", "KV-cache blocks that the zone is guaranteed.", lambda zone: zone.reserved),
    of_zones("gauge", "blocks_limit", "KV-cache blocks that the zone may hold at most.", lambda zone: zone.limit),
    of_zones(
        "gauge",
        "blocks_lent",
        "Blocks of its reservation that others stand on now.",
        lambda zone: zone.lent,
        FROM_DETAILED,
    ),
    of_zones(
        "gauge",
        "blocks_borrowed",
        "Blocks that it holds on others' reservations now.",
        lambda zone: zone.borrowed,
        FROM_DETAILED,
    ),
    of_zones(
        "gauge",
        "blocks_overdue",
        "Of the borrowed blocks, those in use past their due time: while there are any, the zone may not grow.",
        lambda zone: zone.overdue,
    ),
    of_zones(
        "gauge",
        "blocks_short",
        "Reservation that is not held while it is demanded: reserved minus held while the zone's next request waits "
        "for blocks and is within the reservation; else 0.",
        lambda zone: zone.short,
    ),
    of_zones("gauge", "loans", "Loans that stand now, the zone as lender.", lambda zone: zone.loans, FROM_DETAILED),
)

_REQUESTS = (
    of_zones("gauge", "waiting_requests", "Requests that wait for admission.", lambda zone: zone.waiting_requests),
    of_zones("gauge", "running_requests", "Requests that run.", lambda zone: zone.running_requests),
    of_zones(
        "gauge", "weight", "The zone's share of service when zones compete.", lambda zone: zone.weight, FROM_DETAILED
    ),
    of_zones(
        "gauge",
        "priority",
        "The zone's priority: lower ones give up blocks first.",
        lambda zone: zone.priority,
        FROM_DETAILED,
    ),
    of_zones_by(
        "gauge",
        ("state",),
        "state",
        "1 for the state that the zone is in; others are left out. Active: a request waits or runs; Idle: none does; "
        "Evicted: none does and all its blocks are gone.",
        lambda zone: [((zone.state,), 1)],
    ),
)

_EVICTED: Final = "Cached KV-cache blocks that the zone lost."
_REASON: Final = (
    "reason: quiet, reclaim, own, relief, limit, watermark, due, idle, ttl, no_store, purge, removed or reset"
)
_ENDED: Final = "Requests that have ended"

_COUNTERS = (
    of_zones(
        "counter",
        "evicted_blocks_total",
        _EVICTED,
        lambda zone: sum(zone.counters.evictions.values()),
        BASIC,
    ),
    of_zones_by(
        "counter",
        ("reason",),
        "evicted_blocks_total",
        f"{_EVICTED} {_REASON}.",
        lambda zone: without_zeros(zone.counters.evicted),
        DETAILED,
    ),
    of_zones_by(
        "counter",
        ("reason", "beneficiary"),
        "evicted_blocks_total",
        f"{_EVICTED} {_REASON}; beneficiary: whom it made room for, by priority against this zone (none: no "
        "particular zone).",
        lambda zone: zone.counters.evictions.items(),
        FULL,
    ),
    of_zones(
        "counter",
        "taken_blocks_total",
        f"Of the evicted blocks those that others caused: for the reasons {', '.join(TAKEN_FOR)}.",
        lambda zone: zone.counters.taken_blocks,
    ),
    of_zones(
        "counter",
        "prefix_query_tokens_total",
        "Prompt tokens looked up in the prefix cache.",
        lambda zone: zone.counters.prefix_query_tokens,
    ),
    of_zones(
        "counter",
        "prefix_hit_tokens_total",
        "Prompt tokens found in the prefix cache.",
        lambda zone: zone.counters.prefix_hit_tokens,
    ),
    of_zones(
        "counter",
        "prompt_tokens_total",
        "Prompt tokens processed.",
        lambda zone: zone.counters.prompt_tokens,
        FROM_DETAILED,
    ),
    of_zones(
        "counter",
        "generation_tokens_total",
        "Tokens generated.",
        lambda zone: zone.counters.generation_tokens,
        FROM_DETAILED,
    ),
    of_zones(
        "counter",
        "computed_tokens_total",
        "Tokens computed for the zone, each once: of prompts, but for what was cached, and generated.",
        lambda zone: zone.counters.computed_tokens,
        FROM_DETAILED,
    ),
    of_zones_by(
        "counter",
        ("kind",),
        "processed_tokens_total",
        "Tokens that steps computed. computed_first: for the first time; recomputed: although the request had it "
        "before and a preemption lost it.",
        lambda zone: without_zeros(_processed(zone, _ALERTED_KINDS), _ALERTED_KINDS),
        BASIC,
    ),
    of_zones_by(
        "counter",
        ("kind",),
        "processed_tokens_total",
        "Tokens by how they were processed, each in one kind. Computed in steps: computed_first, for the first time; "
        "recomputed, although the request had it before and a preemption lost it; draft_rejected, as a draft that was "
        "not kept. Not computed: hit, found in the prefix cache; loaded, from a tier. A request that was preempted "
        "finds, loads and computes its tokens again, and each time counts.",
        lambda zone: without_zeros(_processed(zone, COUNTERS), _ALERTED_KINDS),
    ),
    of_zones(
        "counter",
        "withheld_tokens_total",
        "Tokens of steps that the zone's requests could have used and that were kept for other zones, by their shares "
        "or for a latency target.",
        lambda zone: zone.counters.withheld_tokens,
        FROM_DETAILED,
    ),
    of_zones(
        "counter",
        "preemptions_total",
        "Times that a running request was sent back to wait.",
        lambda zone: zone.counters.preemptions,
    ),
    of_zones(
        "counter",
        "violations_total",
        "Requests failed because they were about to use a block of another zone. Never normal.",
        lambda zone: zone.counters.violations,
    ),
    of_zones(
        "counter",
        "scrubbed_blocks_total",
        "Blocks with data of the zone that were zeroed because another zone got them (scrub: OnTransfer).",
        lambda zone: zone.counters.scrubbed_blocks,
        FROM_DETAILED,
    ),
    of_zones("counter", "requests_total", f"{_ENDED}.", lambda zone: sum(zone.counters.requests.values()), BASIC),
    of_zones_by(
        "counter",
        ("outcome",),
        "requests_total",
        f"{_ENDED}: stop, length, abort, error as vLLM says; refused: before they could wait; "
        "queue_full: the same, as much of the zone waited as may; other.",
        lambda zone: without_zeros(zone.counters.requests),
    ),
    of_zones(
        "counter",
        "starved_seconds_total",
        "Of the stalled seconds those in which the zone's next request waited for blocks that other zones have: for "
        f"the reasons {' and '.join(STARVED_FOR)}.",
        lambda zone: zone.counters.starved_seconds,
    ),
    of_zones_by(
        "counter",
        ("reason",),
        "stalled_seconds_total",
        "Time in which the zone's next request waited, as the last step found. For blocks: limit, its own zone's limit "
        "is in use; reserved, blocks are there and kept for others; in_use, other requests use them. For a seat: "
        "seats, the engine runs as many requests as it can; seat_limit, the zone runs as many as it may. "
        "For tokens: tokens, its share of the steps is used, or another zone's latency target needs them. "
        "For an adapter slot: adapter, requests for other LoRA adapters use all slots. "
        "For the encoder: encoder, other requests' media use its room, or it is kept for another zone. "
        "For its preparation, as all of the zone's waiting requests: grammar, its grammar is being compiled; load, a "
        "tier looks up blocks of its prompt or copies them.",
        lambda zone: without_zeros(zone.counters.stalled_seconds),
    ),
    of_zones(
        "counter",
        "block_seconds_total",
        "Blocks held, in use or cached, times seconds.",
        lambda zone: zone.counters.block_seconds,
        FROM_DETAILED,
    ),
    of_zones(
        "counter",
        "lent_block_seconds_total",
        "Blocks of its reservation that others stood on, times seconds.",
        lambda zone: zone.counters.lent_block_seconds,
        FROM_DETAILED,
    ),
    of_zones(
        "counter",
        "borrowed_block_seconds_total",
        "Blocks held on others' reservations, times seconds.",
        lambda zone: zone.counters.borrowed_block_seconds,
        FROM_DETAILED,
    ),
)

_LATENCY = (
    of_zones_by(
        "gauge",
        ("target",),
        "latency_target_seconds",
        "The zone's latency targets: tokenTime, between two tokens; firstToken, from a request's arrival to its first.",
        lambda zone: [((_TARGETS[name],), outcome.target) for name, outcome in zone.outcomes.items()],
    ),
    of_zones_by(
        "gauge",
        ("target",),
        "latency_seconds",
        "What the zone's requests get of what it has a target for: 99th percentile of the last minute.",
        lambda zone: [
            ((_TARGETS[name],), outcome.actual) for name, outcome in zone.outcomes.items() if outcome.actual is not None
        ],
    ),
    of_zones_by(
        "gauge",
        ("target",),
        "latency_target_met",
        "1 if the target is met, up to 1.15 times itself, else 0; absent while nothing was served.",
        lambda zone: [
            ((_TARGETS[name],), outcome.met) for name, outcome in zone.outcomes.items() if outcome.met is not None
        ],
        LEVELS,
    ),
)

_QUEUE_TIME: Final = "From a request's arrival at the API server until it was first scheduled."
_FIRST_TOKEN: Final = "From a request's arrival at the API server until its first token left the engine core."


def _durations(type: Type, levels: tuple[Level, ...]) -> tuple[Family, ...]:
    return (
        of_zones(type, "queue_time_seconds", _QUEUE_TIME, lambda zone: zone.counters.queue_time, levels),
        of_zones(
            type, "time_to_first_token_seconds", _FIRST_TOKEN, lambda zone: zone.counters.time_to_first_token, levels
        ),
    )


ZONES: Final = (
    *_BLOCKS,
    *_REQUESTS,
    *_COUNTERS,
    *_LATENCY,
    *_durations("summary", DETAILED),
    *_durations("histogram", FULL),
)
"""All metrics of zones, in the order of a scrape."""
