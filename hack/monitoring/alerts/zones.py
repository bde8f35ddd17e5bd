"""Alerts about one zone in one engine. They carry the engine's namespace and pod, and the zone's pool, name, tenant."""

from hack.monitoring.model import Alert
from hack.monitoring.time_scale import TimeScale

TAKEN_TIMES_HELD = 3
"""Blocks that others take in five minutes, over the most that the zone held in them."""
TAKEN_OF_CAPACITY = 0.01
"""The same over the engine's blocks: what the smallest zones lose is noise."""
TIMES_BASELINE = 2
"""Over the zone's own mean of the last hour."""
BURST_TIMES_HELD = 1.5
"""The size of a burst relative to the most that the zone held."""
STALLED = 0.25
"""Part of the time."""
HIT_RATIO_FALL = 0.5
"""Over the zone's own mean of the last hour."""
HIT_RATIO_WORTH = 0.2
"""A mean under which there is no cache to lose."""
QUERIED_OF_CAPACITY = 0.02
"""Prompt tokens of five minutes over the tokens that the engine can hold: with less there is no rate to speak of."""

RECOMPUTED = 0.2
"""The part of the tokens that steps compute for the zone."""
COMPUTED_OF_CAPACITY = 0.02
"""Tokens computed in five minutes over the tokens that the engine can hold: of less the share says little."""

_WHERE = "zone {{ $labels.zone }} (tenant {{ $labels.tenant }}, pool {{ $labels.pool }})"
_BLOCKS = '{{ $value | printf "%.0f" }}'
_IN = "in engine {{ $labels.namespace }}/{{ $labels.pod }}"


def zone_alerts(time_scale: TimeScale) -> tuple[Alert, ...]:
    """Returns all alerts for a scale of time."""
    return (
        *_evictions(time_scale),
        *_promises(time_scale),
        _hit_rate(time_scale),
        _recomputing(time_scale),
        _latency(time_scale),
        _guard(time_scale),
    )


def _evictions(time_scale: TimeScale) -> tuple[Alert, ...]:
    taken = "tenantzone:zone_taken_blocks:increase5m"
    held = "tenantzone:zone_held_blocks:max5m"
    matters = f"tenantzone:zone_taken:ratio5m > {TAKEN_OF_CAPACITY}"
    baseline = f"avg_over_time({taken}[{time_scale(60)}] offset {time_scale(5)})"
    return (
        Alert(
            "TenantZoneEvictionsHigh",
            "warning",
            f"{taken} > {TAKEN_TIMES_HELD} * {held} and {matters}",
            time_scale(5),
            f"Others take the cache of {_WHERE}",
            f"In five minutes others have taken {_BLOCKS} cached blocks of {_WHERE} {_IN}: more than"
            f" {TAKEN_TIMES_HELD} times all that it held. Its prefixes are computed again and again.",
        ),
        Alert(
            "TenantZoneEvictionBurst",
            "warning",
            f"{taken} > {TIMES_BASELINE} * {baseline} and {taken} > {BURST_TIMES_HELD} * {held} and {matters}"
            f" and {_old(time_scale)}",
            time_scale(5),
            f"Others take the cache of {_WHERE}, unlike in the last hour",
            f"In five minutes others have taken {_BLOCKS} cached blocks of {_WHERE} {_IN}: more than"
            f" {TIMES_BASELINE} times the mean of the last hour, and more than {BURST_TIMES_HELD} times all that it"
            " held.",
        ),
    )


def _old(time_scale: TimeScale) -> str:
    """Whether the zone was there an hour ago: a younger one has no hour to be compared with."""
    return f"tenantzone_zone_blocks_in_use offset {time_scale(60)}"


def _promises(time_scale: TimeScale) -> tuple[Alert, ...]:
    return (
        Alert(
            "TenantZoneReservationNotHeld",
            "page",
            "tenantzone_zone_blocks_short > 0",
            time_scale(1),
            f"The reservation of {_WHERE} is not held",
            f"{_BLOCKS} blocks that {_WHERE} has reserved are missing {_IN}, and a request of it waits for them.",
        ),
        Alert(
            "TenantZoneStarved",
            "warning",
            f"tenantzone:zone_stalled:ratio5m > {STALLED}",
            time_scale(5),
            f"Requests of {_WHERE} wait for blocks",
            f"{{{{ $value | humanizePercentage }}}} of the last five minutes, the next request of {_WHERE} waited {_IN}"
            " for blocks that others use or have reserved.",
        ),
        Alert(
            "TenantZoneLoansOverdue",
            "warning",
            "tenantzone_zone_blocks_overdue > 0",
            time_scale(2),
            f"Loans of {_WHERE} are overdue",
            f"{_WHERE} has been using {_BLOCKS} blocks {_IN} past the time at which their loan was"
            " due. It can't grow until it gives them back.",
        ),
    )


def _hit_rate(time_scale: TimeScale) -> Alert:
    ratio = "tenantzone:zone_hit_ratio:rate5m"
    baseline = f"avg_over_time({ratio}[{time_scale(60)}] offset {time_scale(5)})"
    return Alert(
        "TenantZoneHitRateCollapsed",
        "warning",
        f"{ratio} < {HIT_RATIO_FALL} * ({baseline} > {HIT_RATIO_WORTH})"
        f" and tenantzone:zone_queried:ratio5m > {QUERIED_OF_CAPACITY} and {_old(time_scale)}",
        time_scale(10),
        f"The cache of {_WHERE} no longer helps",
        f"Of the prompt tokens of {_WHERE} {_IN}, {{{{ $value | humanizePercentage }}}} were found in the cache in the"
        f" last five minutes: less than half of the mean of the last hour.",
    )


def _recomputing(time_scale: TimeScale) -> Alert:
    return Alert(
        "TenantZoneRecomputing",
        "warning",
        f"tenantzone:zone_recomputed:ratio5m > {RECOMPUTED} and tenantzone:zone_computed:ratio5m"
        f" > {COMPUTED_OF_CAPACITY}",
        time_scale(10),
        f"Much of what is computed for {_WHERE} was lost to preemptions",
        f"Of the tokens that steps computed for {_WHERE} {_IN} in the last five minutes,"
        " {{ $value | humanizePercentage }} had been there before: its requests were preempted and computed them anew.",
    )


def _latency(time_scale: TimeScale) -> Alert:
    return Alert(
        "TenantZoneLatencyTargetMissed",
        "warning",
        "tenantzone_zone_latency_target_met == 0",
        time_scale(5),
        f"{_WHERE} misses its latency target",
        f"The target {{{{ $labels.target }}}} of {_WHERE} has been missed {_IN}.",
    )


def _guard(time_scale: TimeScale) -> Alert:
    violations = "tenantzone_zone_violations_total"
    return Alert(
        "TenantZoneGuardViolation",
        "page",
        # A zone that was made after the last scrape has no zero to rise from.
        f"increase({violations}[{time_scale(15)}]) > 0 "
        f"or ({violations} > 0 unless {violations} offset {time_scale(15)})",
        "",
        f"A request of {_WHERE} was about to use another zone's block",
        f"The guard stopped a request of {_WHERE} {_IN} that was about to use a block of another zone. Nothing was"
        " served from it. This is a defect in the scheduler's bookkeeping, and never normal.",
    )
