"""The row of panels about tiers below engines' blocks."""

from hack.monitoring.panels.panel import Panel, Query, Row

_ZONE = 'namespace=~"$namespace",pool=~"$pool",zone=~"$zone"'
_INTERVAL = "[$__rate_interval]"
_POOLS = 'on (namespace, pod) group_left (pool) tenantzone_engine_info{namespace=~"$namespace",pool=~"$pool"}'
"""Engines know their pool by their info only."""


def tiers() -> Row:
    """Returns the row on what zones hold, find and are refused in tiers, and on the tiers themselves."""
    return Row(
        "Tiers",
        (
            Panel(
                "Held in tiers against reserved",
                "Over all engines of the pool.",
                "bytes",
                (
                    Query(_sum("held_bytes"), "{{zone}}: {{tier}}"),
                    Query(_sum("reserved_bytes"), "{{zone}}: {{tier}}, reserved"),
                ),
                level="detailed",
            ),
            Panel(
                "Tiers in use",
                "Held by zones, over what the tiers of all engines have. A tier that is used is full: it is a cache."
                " A shared tier has no capacity.",
                "percentunit",
                (Query(f"{_of_engines('held_bytes')} / ({_of_engines('capacity_bytes')} > 0)", "{{pool}}: {{tier}}"),),
            ),
            Panel(
                "Loaded and stored",
                "What came back from tiers for the zone's requests, and what went there.",
                "Bps",
                (
                    Query(_rate("loaded_bytes"), "{{zone}}: {{tier}}, loaded"),
                    Query(_rate("stored_bytes"), "{{zone}}: {{tier}}, stored"),
                ),
                level="detailed",
            ),
            Panel(
                "Chunks refused and evicted",
                "refused: not stored, by reason. evicted: own, limit and ttl are the zone's own; quiet and reclaim are"
                " for others.",
                "ops",
                (
                    Query(_rate("refused_chunks", "reason"), "{{zone}}: {{tier}}, refused, {{reason}}"),
                    Query(_rate("evicted_chunks", "reason"), "{{zone}}: {{tier}}, evicted, {{reason}}"),
                ),
                level="detailed",
            ),
            Panel(
                "Stored in tiers, of all zones",
                "What went there.",
                "Bps",
                (Query(_rate_of_engines("stored_bytes"), "{{pool}}: {{tier}}"),),
            ),
            Panel(
                "Chunks refused and corrupt, of all zones",
                "refused: not stored, by reason. corrupt: not what was stored, and computed again.",
                "ops",
                (
                    Query(_rate_of_engines("refused_chunks", "reason"), "{{pool}}: {{tier}}, refused, {{reason}}"),
                    Query(_rate_of_engines("corrupt_chunks"), "{{pool}}: {{tier}}, corrupt"),
                ),
            ),
            Panel(
                "Chunks lost",
                "Computed again, because they were not what was stored, not there, refused or late.",
                "ops",
                (Query(_rate("lost_chunks", "reason"), "{{zone}}: {{tier}}, {{reason}}"),),
                level="detailed",
            ),
            Panel(
                "Tiers that fail",
                "Of all engines. Never other than 0.",
                "short",
                (Query(_of_engines("failing"), "{{pool}}: {{tier}}"),),
                "stat",
            ),
        ),
    )


def _sum(name: str) -> str:
    return f"sum by (pool, zone, tier) (tenantzone_zone_tier_{name}{{{_ZONE}}})"


def _rate(name: str, label: str = "") -> str:
    by = f"pool, zone, tier, {label}" if label else "pool, zone, tier"
    return f"sum by ({by}) (rate(tenantzone_zone_tier_{name}_total{{{_ZONE}}}{_INTERVAL}))"


def _of_engines(name: str) -> str:
    return f"sum by (pool, tier) (tenantzone_tier_{name} * {_POOLS})"


def _rate_of_engines(name: str, label: str = "") -> str:
    by = f"pool, tier, {label}" if label else "pool, tier"
    return f"sum by ({by}) (rate(tenantzone_tier_{name}_total{_INTERVAL}) * {_POOLS})"
