"""Recording rules: the queries that both the alerts and the dashboard use.

An engine exports their metrics at each level, from its start: a counter that appears with its first increment has a
rate without it.
"""

from hack.monitoring.model import Recording
from hack.monitoring.time_scale import TimeScale


def recordings(time_scale: TimeScale) -> tuple[Recording, ...]:
    """Returns all recordings for a scale of time."""
    window, quarter = time_scale(5), time_scale(15)
    return (
        Recording("tenantzone:zone_held_blocks", "tenantzone_zone_blocks_in_use + tenantzone_zone_blocks_cached"),
        # Of what the zone held at most in the window: a zone that has lost all of it holds nothing to compare with.
        Recording("tenantzone:zone_held_blocks:max5m", f"max_over_time(tenantzone:zone_held_blocks[{window}])"),
        Recording(
            "tenantzone:zone_taken_blocks:increase5m",
            f"increase(tenantzone_zone_taken_blocks_total[{window}])",
        ),
        Recording(
            "tenantzone:zone_taken:ratio5m",
            "tenantzone:zone_taken_blocks:increase5m / on (namespace, pod) group_left ()"
            " max by (namespace, pod) (tenantzone_engine_capacity_blocks)",
        ),
        # No result, rather than 0/0, while nothing was asked.
        Recording(
            "tenantzone:zone_hit_ratio:rate5m",
            f"rate(tenantzone_zone_prefix_hit_tokens_total[{window}])"
            f" / (rate(tenantzone_zone_prefix_query_tokens_total[{window}]) > 0)",
        ),
        # Over what the engine can hold: a handful of requests is no statistic.
        Recording(
            "tenantzone:zone_queried:ratio5m",
            f"increase(tenantzone_zone_prefix_query_tokens_total[{window}]) / on (namespace, pod) group_left ()"
            " max by (namespace, pod) (tenantzone_engine_capacity_blocks * tenantzone_engine_block_size_tokens)",
        ),
        # No result, rather than 0/0, while nothing is computed. Rejected drafts do not hide lost tokens.
        Recording(
            "tenantzone:zone_recomputed:ratio5m",
            f'sum without (kind) (rate(tenantzone_zone_processed_tokens_total{{kind="recomputed"}}[{window}])) / (sum'
            ' without (kind) (rate(tenantzone_zone_processed_tokens_total{kind=~"computed_first|recomputed"}'
            f"[{window}])) > 0)",
        ),
        Recording(
            "tenantzone:zone_computed:ratio5m",
            'sum without (kind) (increase(tenantzone_zone_processed_tokens_total{kind=~"computed_first|recomputed"}'
            f"[{window}])) / on (namespace, pod) group_left ()"
            " max by (namespace, pod) (tenantzone_engine_capacity_blocks * tenantzone_engine_block_size_tokens)",
        ),
        # What its own limit holds back is as its owner wants it.
        Recording(
            "tenantzone:zone_stalled:ratio5m",
            f"rate(tenantzone_zone_starved_seconds_total[{window}])",
        ),
        Recording("tenantzone:zone_tier_refused:ratio15m", _refused("tenantzone_zone_tier", quarter)),
        Recording("tenantzone:tier_refused:ratio15m", _refused("tenantzone_tier", quarter)),
        Recording(
            "tenantzone:pool_held:ratio",
            "sum by (namespace, pool) (tenantzone:zone_held_blocks)"
            " / on (namespace, pool) sum by (namespace, pool) (tenantzone_engine_capacity_blocks"
            " * on (namespace, pod) group_left (pool) tenantzone_engine_info)",
        ),
    )


def _refused(of: str, window: str) -> str:
    """Returns the refused part of what would have been stored: of tiers, or of each zone in each tier."""
    refused = f'sum without (reason) (increase({of}_refused_chunks_total{{reason="room"}}[{window}]))'
    return (
        f"{refused} / ({refused} + increase({of}_stored_bytes_total[{window}])"
        " / on (namespace, pod, tier) group_left () tenantzone_tier_chunk_bytes > 0)"
    )
