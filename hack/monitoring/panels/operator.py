"""Rows of panels about the way from a TenantZone to the engines: configs, engines, the operator."""

from hack.monitoring.panels.panel import Panel, Query, Row

_POOL = 'pool_namespace=~"$namespace",pool=~"$pool"'
_INTERVAL = "[$__rate_interval]"


def engines() -> Row:
    """The row of panels about engines and their configs."""
    written = f"max by (pool_namespace, pool) (tenantzone_pool_generation{{{_POOL}}})"
    applied = f"max by (pool_namespace, pool, engine) (tenantzone_pool_engine_generation{{{_POOL}}})"
    states = f"max by (pool_namespace, pool, state) (tenantzone_pool_engines{{{_POOL}}})"
    zones = f"max by (pool_namespace, pool, condition, status) (tenantzone_pool_zones{{{_POOL}}})"
    rejected = 'max by (namespace, pod) (tenantzone_config_rejected{namespace=~"$namespace"})'
    reserved = f"max by (pool_namespace, pool) (tenantzone_pool_reserved_blocks{{{_POOL}}})"
    capacity = f"max by (pool_namespace, pool) (tenantzone_pool_capacity_blocks{{{_POOL}}})"
    age = 'time() - max by (namespace, pod) (tenantzone_report_time_seconds{namespace=~"$namespace"})'
    return Row(
        "Engines and their config",
        (
            Panel(
                "Config generations",
                "The newest one that the operator wrote, and the one that each engine enforces.",
                "short",
                (Query(written, "{{pool}}"), Query(applied, "{{pool}}: {{engine}}")),
            ),
            Panel("Engines by state", "As the operator sees them.", "short", (Query(states, "{{pool}}: {{state}}"),)),
            Panel("Config refused", "1: the engine refuses its newest config.", "short", (Query(rejected, "{{pod}}"),)),
            Panel("Age of the report", "Grows when an engine hangs.", "s", (Query(age, "{{pod}}"),)),
            Panel(
                "Zones by condition",
                "How many zones of a pool are accepted, programmed and ready.",
                "short",
                (Query(zones, "{{pool}}: {{condition}} {{status}}"),),
            ),
            Panel(
                "Reserved of the planned blocks per engine",
                "What zones have reserved, and what there is.",
                "short",
                (Query(reserved, "{{pool}} reserved"), Query(capacity, "{{pool}} capacity")),
            ),
        ),
    )


def operator() -> Row:
    """The row of panels about the operator."""

    def rate(name: str, by: str) -> str:
        return f"sum by ({by}) (rate(tenantzone_operator_{name}_total{_INTERVAL}))"

    def slowest(name: str, by: str) -> str:
        return f"histogram_quantile(0.99, sum by ({by}) (rate(tenantzone_operator_{name}_bucket{_INTERVAL})))"

    return Row(
        "Operator",
        (
            Panel("Leader", "1: this one leads.", "short", (Query("tenantzone_operator_leading", "{{pod}}"),)),
            Panel(
                "Since the last look at all pools",
                "The leader looks each minute.",
                "s",
                (Query("tenantzone_operator_seconds_since_reconcile", "{{pod}}"),),
            ),
            Panel("Reconciles", "Looks at a pool.", "ops", (Query(rate("reconciles", "result"), "{{result}}"),)),
            Panel("Reconcile, p99", "", "s", (Query(slowest("reconcile_seconds", "le"), "p99"),)),
            Panel(
                "Requests to the API server",
                "",
                "reqps",
                (Query(rate("api_requests", "verb, resource, code"), "{{verb}} {{resource}} {{code}}"),),
            ),
            Panel(
                "Requests to the API server, p99",
                "",
                "s",
                (Query(slowest("api_request_seconds", "le, verb"), "{{verb}}"),),
            ),
            Panel("Engines asked", "", "reqps", (Query(rate("engine_polls", "result"), "{{result}}"),)),
        ),
    )
