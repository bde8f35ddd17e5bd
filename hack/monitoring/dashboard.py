"""The Grafana dashboard, made with Grafana's own SDK."""

import itertools
from collections.abc import Iterator

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)

from hack.monitoring.panels import rows
from hack.monitoring.panels.panel import Panel, Query
from tenantzone_runtime.metrics_levels import DEFAULT_LEVEL, Level

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_COLUMNS = 24
_HEIGHT = 8
_REFERENCES = "ABCDEFGH"
_OR_MORE: dict[Level, str] = {"detailed": " or full", "full": ""}


def dashboard_json() -> str:
    """The dashboard as Grafana imports it, and as its sidecar finds it in a ConfigMap."""
    dashboard = (
        builders.Dashboard("TenantZone")
        .uid("tenantzone")
        .description("Zones of KV-cache blocks: what each tenant holds, loses and waits for.")
        .tags(["tenantzone", "vllm"])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    known = 'tenantzone_zone_blocks_reserved{namespace=~"$namespace",pool=~"$pool"}'
    dashboard.with_variable(_variable("namespace", "label_values(tenantzone_zone_blocks_reserved, namespace)"))
    dashboard.with_variable(
        _variable("pool", 'label_values(tenantzone_zone_blocks_reserved{namespace=~"$namespace"}, pool)')
    )
    dashboard.with_variable(_variable("zone", f"label_values({known}, zone)"))
    numbers = itertools.count(1)
    for row in rows():
        dashboard.with_row(builders.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            dashboard.with_panel(_panel(panel).id(next(numbers)))
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard.build()) + "\n"


def _variable(name: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(name.capitalize())
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> timeseries.Panel | stat.Panel:
    return _stat(panel) if panel.style == "stat" else _lines(panel)


def _description(panel: Panel) -> str:
    if panel.level == DEFAULT_LEVEL:
        return panel.description
    return f"{panel.description} For engines with --metrics-level {panel.level}{_OR_MORE[panel.level]}."


def _stat(panel: Panel) -> stat.Panel:
    made = stat.Panel().title(panel.title).description(_description(panel)).unit(panel.unit).datasource(_SOURCE)
    made.span(_COLUMNS // 4).height(_HEIGHT // 2).graph_mode(options.BigValueGraphMode.AREA)
    made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    made.thresholds(
        builders.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=None, color="green"), Threshold(value=1, color="red")])
    )
    for target in _targets(panel):
        made.with_target(target)
    return made


def _lines(panel: Panel) -> timeseries.Panel:
    made = timeseries.Panel().title(panel.title).description(_description(panel)).unit(panel.unit).datasource(_SOURCE)
    made.span(_COLUMNS // 3).height(_HEIGHT).min(0).line_width(1).fill_opacity(8)
    made.legend(
        common.VizLegendOptions()
        .display_mode(options.LegendDisplayMode.LIST)
        .placement(options.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    made.tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI))
    if panel.style == "stacked":
        made.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL))
        _draw_bounds(made)
    if panel.for_each_zone:
        made.repeat("zone").max_per_row(3)
    for target in _targets(panel):
        made.with_target(target)
    return made


def _draw_bounds(panel: timeseries.Panel) -> None:
    """Draw the reservation and the limit as lines above the stack, not as parts of it."""
    panel.override_by_regexp(
        "reserved|limit",
        [
            DynamicConfigValue(id_val="custom.stacking", value={"mode": "none"}),
            DynamicConfigValue(id_val="custom.fillOpacity", value=0),
            DynamicConfigValue(id_val="custom.lineStyle", value={"dash": [8, 4], "fill": "dash"}),
        ],
    )


def _targets(panel: Panel) -> Iterator[prometheus.Dataquery]:
    for reference, query in zip(_REFERENCES, panel.queries, strict=False):
        yield _target(query, reference)


def _target(query: Query, reference: str) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(reference).datasource(_SOURCE)
    )
