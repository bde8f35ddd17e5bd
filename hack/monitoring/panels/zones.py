"""Rows of panels about zones: what each holds, loses, finds and waits for."""

from hack.monitoring.panels.panel import Panel, Query, Row

_ZONE = 'namespace=~"$namespace",pool=~"$pool",zone=~"$zone"'
_INTERVAL = "[$__rate_interval]"


def overview() -> Row:
    """Returns the row of panels that show whether something is wrong."""
    firing = 'count(ALERTS{alertname=~"TenantZone.*",alertstate="firing"}) or vector(0)'
    stalled = f"count(tenantzone:zone_stalled:ratio5m{{{_ZONE}}} > 0.1) or vector(0)"
    short = f"sum(tenantzone_zone_blocks_short{{{_ZONE}}})"
    violations = f"sum(increase(tenantzone_zone_violations_total{{{_ZONE}}}[1h]))"
    return Row(
        "Is something wrong?",
        (
            Panel("Alerts that fire", "Of TenantZone's own rules.", "short", (Query(firing, "alerts"),), "stat"),
            Panel(
                "Zones that wait for blocks",
                "Their next request waited for what others have, in more than a tenth of the last five minutes.",
                "short",
                (Query(stalled, "zones"),),
                "stat",
            ),
            Panel(
                "Reserved blocks missing",
                "Of zones whose next request waits for them. Never other than 0.",
                "short",
                (Query(short, "blocks"),),
                "stat",
            ),
            Panel(
                "Guard violations",
                "In the last hour. Never other than 0.",
                "short",
                (Query(violations, "requests"),),
                "stat",
            ),
        ),
    )


def blocks() -> Row:
    """The row of panels about what zones hold, lend and borrow."""
    return Row(
        "Blocks",
        (
            Panel(
                "$zone: held against reserved and limit",
                "What requests use and what is kept cached, over all engines of the pool.",
                "short",
                (
                    Query(_sum("tenantzone_zone_blocks_in_use"), "in use"),
                    Query(_sum("tenantzone_zone_blocks_cached"), "cached"),
                    Query(_sum("tenantzone_zone_blocks_reserved"), "reserved"),
                    Query(_sum("tenantzone_zone_blocks_limit"), "limit"),
                ),
                "stacked",
                for_each_zone=True,
            ),
            Panel(
                "Lent and borrowed",
                "Blocks of a reservation that others stand on, and blocks that a zone holds on others' reservations.",
                "short",
                (
                    Query(_sum("tenantzone_zone_blocks_lent"), "{{zone}} lends"),
                    Query(_sum("tenantzone_zone_blocks_borrowed"), "{{zone}} borrows"),
                    Query(_sum("tenantzone_zone_blocks_overdue"), "{{zone}} owes, overdue"),
                ),
                level="detailed",
            ),
            Panel(
                "Pool in use",
                "Blocks held by zones, over the blocks of all engines. A pool that serves is full: what is not in use"
                " is cache.",
                "percentunit",
                (Query('tenantzone:pool_held:ratio{namespace=~"$namespace",pool=~"$pool"}', "{{pool}}"),),
            ),
        ),
    )


def cache() -> Row:
    """The row of panels about what zones find in their caches, and lose."""
    evicted = (
        f"sum by (pool, zone, reason, beneficiary) (rate(tenantzone_zone_evicted_blocks_total{{{_ZONE}}}{_INTERVAL}))"
    )
    taken = f"sum by (pool, zone) (tenantzone:zone_taken_blocks:increase5m{{{_ZONE}}})"
    hit = (
        f"sum by (pool, zone) (rate(tenantzone_zone_prefix_hit_tokens_total{{{_ZONE}}}{_INTERVAL}))"
        f" / (sum by (pool, zone) (rate(tenantzone_zone_prefix_query_tokens_total{{{_ZONE}}}{_INTERVAL})) > 0)"
    )
    return Row(
        "Cache",
        (
            Panel("Hit rate", "Prompt tokens found in the cache.", "percentunit", (Query(hit, "{{zone}}"),)),
            Panel(
                "Evicted and taken blocks",
                "taken: those that others caused to be evicted, and not the zone's own requests or its spec.",
                "blocks/s",
                (
                    Query(_rate("evicted_blocks"), "{{zone}} evicted"),
                    Query(_rate("taken_blocks"), "{{zone}} taken"),
                ),
            ),
            Panel(
                "Evicted blocks by reason and beneficiary",
                "own and limit: the zone's own requests. quiet, reclaim, relief, watermark: others, by their priority.",
                "blocks/s",
                (Query(evicted, "{{zone}}: {{reason}}, {{beneficiary}}"),),
                level="full",
            ),
            Panel(
                "Taken by others in five minutes",
                "What the eviction alerts look at.",
                "short",
                (Query(taken, "{{zone}}"),),
            ),
        ),
    )


def requests() -> Row:
    """The row of panels about how long requests take and wait."""
    starved = f"avg by (pool, zone) (rate(tenantzone_zone_starved_seconds_total{{{_ZONE}}}{_INTERVAL}))"
    stalled = f"avg by (pool, zone, reason) (rate(tenantzone_zone_stalled_seconds_total{{{_ZONE}}}{_INTERVAL}))"
    return Row(
        "Requests",
        (
            Panel(
                "Time to first token",
                "From a request's arrival until its first token leaves the engine core.",
                "s",
                _quantiles("time_to_first_token"),
                level="full",
            ),
            Panel(
                "Queue time",
                "From a request's arrival until it is first scheduled.",
                "s",
                _quantiles("queue_time"),
                level="full",
            ),
            Panel(
                "Time without blocks",
                "Part of the time in which a zone's next request waited for blocks that others have.",
                "percentunit",
                (Query(starved, "{{zone}}"),),
            ),
            Panel(
                "Time of waiting by reason",
                "Part of the time in which a zone's next request waited for blocks, a seat, tokens or its preparation.",
                "percentunit",
                (Query(stalled, "{{zone}}: {{reason}}"),),
                level="detailed",
            ),
            Panel(
                "Waiting and running requests",
                "Of all engines.",
                "short",
                (
                    Query(_sum("tenantzone_zone_waiting_requests"), "{{zone}} waiting"),
                    Query(_sum("tenantzone_zone_running_requests"), "{{zone}} running"),
                ),
            ),
            Panel("Requests", "That have ended.", "reqps", (Query(_rate("requests"), "{{zone}}"),)),
            Panel(
                "Requests by outcome",
                "How they ended.",
                "reqps",
                (Query(_rate("requests", "outcome"), "{{zone}}: {{outcome}}"),),
                level="detailed",
            ),
            Panel("Preemptions", "Requests sent back to wait.", "ops", (Query(_rate("preemptions"), "{{zone}}"),)),
            Panel(
                "Tokens",
                "Prompt tokens, and tokens generated.",
                "short",
                (
                    Query(_rate("prompt_tokens"), "{{zone}} in"),
                    Query(_rate("generation_tokens"), "{{zone}} out"),
                ),
                level="detailed",
            ),
            Panel(
                "Tokens by how they were processed",
                "Computed for the first time, computed again after a preemption, drafted and not kept, found in the"
                " cache, or loaded from a tier. With --metrics-level basic, engines export those that were computed.",
                "short",
                (Query(_rate("processed_tokens", "kind"), "{{zone}}: {{kind}}"),),
            ),
            Panel(
                "Recomputed",
                "Of the tokens that steps computed, those that preemptions had lost.",
                "percentunit",
                (Query(f"tenantzone:zone_recomputed:ratio5m{{{_ZONE}}}", "{{zone}} in {{pod}}"),),
            ),
        ),
    )


def steps() -> Row:
    """The row of panels about shares of the engines' steps, and latency targets."""
    first = 'tenantzone_zone_processed_tokens_total{kind="computed_first",'
    computed = f"sum by (pool, zone) (rate({first}{_ZONE}}}{_INTERVAL}))"
    all_computed = f'sum by (pool) (rate({first}namespace=~"$namespace",pool=~"$pool"}}{_INTERVAL}))'
    actual, expected, error = (
        f"{_of_engines(name)} / ({_of_engines('predicted_steps')} > 0)"
        for name in ("step_seconds", "predicted_step_seconds", "step_prediction_error_seconds")
    )
    target, latency = (
        f"{by} by (pool, zone, target) (tenantzone_zone_{name}{{{_ZONE}}})"
        for by, name in (("min", "latency_target_seconds"), ("max", "latency_seconds"))
    )
    return Row(
        "Steps and latency targets",
        (
            Panel(
                "Share of the steps' tokens",
                "Of all tokens that the pool's engines compute: prompts, but for what was cached, and answers.",
                "percentunit",
                (Query(f"{computed} / on (pool) group_left () ({all_computed} > 0)", "{{zone}}"),),
            ),
            Panel(
                "Tokens withheld",
                "That requests could have had computed and that were kept for others, by weight or for a target.",
                "short",
                (Query(_rate("withheld_tokens"), "{{zone}}"),),
                level="detailed",
            ),
            Panel(
                "Latency against target",
                "99th percentile of the last minute, in the engine where it is longest.",
                "s",
                (Query(latency, "{{zone}}: {{target}}"), Query(target, "{{zone}}: {{target}}, target")),
                level="detailed",
            ),
            Panel(
                "Engines that meet a zone's target",
                "Share of the engines that served the zone in the last minute.",
                "percentunit",
                (
                    Query(
                        f"avg by (pool, zone, target) (tenantzone_zone_latency_target_met{{{_ZONE}}})",
                        "{{zone}}: {{target}}",
                    ),
                ),
            ),
            Panel(
                "Time of a step",
                "Where zones have latency targets: what steps take, what they were predicted to, and by how much "
                "predictions are wrong.",
                "s",
                (Query(actual, "{{pool}}"), Query(expected, "{{pool}}, predicted"), Query(error, "{{pool}}, error")),
            ),
        ),
    )


def _sum(name: str) -> str:
    return f"sum by (pool, zone) ({name}{{{_ZONE}}})"


def _rate(name: str, label: str = "") -> str:
    by = f"pool, zone, {label}" if label else "pool, zone"
    return f"sum by ({by}) (rate(tenantzone_zone_{name}_total{{{_ZONE}}}{_INTERVAL}))"


def _of_engines(name: str) -> str:
    """A rate of the engines of each pool, which know their pool by their info only."""
    pools = 'on (namespace, pod) group_left (pool) tenantzone_engine_info{namespace=~"$namespace",pool=~"$pool"}'
    return f"sum by (pool) (rate(tenantzone_engine_{name}_total{_INTERVAL}) * {pools})"


def _quantiles(name: str) -> tuple[Query, ...]:
    """Returns queries of the classic histogram, or of the native one, if Prometheus keeps that in its place."""
    rate = f"rate(tenantzone_zone_{name}_seconds%s{{{_ZONE}}}{_INTERVAL})"
    classic, native = f"sum by (le, pool, zone) ({rate % '_bucket'})", f"sum by (pool, zone) ({rate % ''})"
    return tuple(
        Query(
            f"histogram_quantile({share}, {classic}) or histogram_quantile({share}, {native})",
            f"{{{{zone}}}} p{share * 100:.0f}",
        )
        for share in (0.5, 0.95, 0.99)
    )
