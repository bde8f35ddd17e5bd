"""The row of panels about the KV-cache manager."""

from hack.monitoring.panels.panel import Panel, Query, Row


def manager() -> Row:
    """Returns the row on what groups use, find and are refused, and on the manager itself."""

    def rate(name: str, by: str) -> str:
        return f"sum by ({by}) (rate(tenantzone_manager_{name}_total[$__rate_interval]))"

    # Each replica reports the shared values.
    used, limit = (f"max by (group, type) (tenantzone_manager_{name}_bytes)" for name in ("used", "limit"))
    slowest = "sum by (le, call) (rate(tenantzone_manager_request_seconds_bucket[$__rate_interval]))"
    hits = f"{rate('matched_blocks', 'group')} / ({rate('queried_blocks', 'group')} > 0)"
    available = "min by (storage, type) (tenantzone_manager_storage_available)"
    return Row(
        "KV-cache manager",
        (
            Panel(
                "Used by groups",
                "By storage type; without one: in all.",
                "bytes",
                (Query(used, "{{group}}: {{type}}"), Query(limit, "{{group}}: {{type}}, limit")),
            ),
            Panel("Blocks found", "Share of the blocks asked for.", "percentunit", (Query(hits, "{{group}}"),)),
            Panel(
                "Blocks to write",
                "",
                "ops",
                (Query(rate("write_blocks", "group, standing"), "{{group}}: {{standing}}"),),
            ),
            Panel("Calls", "", "reqps", (Query(rate("requests", "call, code"), "{{call}} {{code}}"),)),
            Panel("Calls, p99", "", "s", (Query(f"histogram_quantile(0.99, {slowest})", "{{call}}"),)),
            Panel("Storages available", "0: disabled or unhealthy.", "short", (Query(available, "{{storage}}"),)),
            Panel(
                "Moved between storage types",
                "Up, what is read often; down, what is cold.",
                "Bps",
                (Query(rate("moved_bytes", "direction"), "{{direction}}"),),
            ),
        ),
    )
