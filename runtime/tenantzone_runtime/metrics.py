"""The engine's report as Prometheus metrics. One scrape is one snapshot."""

from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from tenantzone_contract.report import ConfigStatus, EngineReport, EvictionReason, ZoneReport, ZoneState

_ZONE_LABELS = ("zone", "tenant")

_ZONE_GAUGES: tuple[tuple[str, str, Callable[[ZoneReport], float]], ...] = (
    ("blocks_in_use", "KV-cache blocks that the zone's requests use.", lambda zone: zone.in_use),
    ("blocks_cached", "KV-cache blocks kept for their prefix, used by no request.", lambda zone: zone.cached),
    ("blocks_reserved", "KV-cache blocks that the zone is guaranteed.", lambda zone: zone.reserved),
    ("blocks_limit", "KV-cache blocks that the zone may hold at most.", lambda zone: zone.limit),
    ("waiting_requests", "Requests that wait for admission.", lambda zone: zone.waiting_requests),
    ("running_requests", "Requests that run.", lambda zone: zone.running_requests),
)

_ZONE_COUNTERS: tuple[tuple[str, str, Callable[[ZoneReport], float]], ...] = (
    ("prefix_query_tokens", "Prompt tokens looked up in the prefix cache.", lambda zone: zone.prefix_query_tokens),
    ("prefix_hit_tokens", "Prompt tokens found in the prefix cache.", lambda zone: zone.prefix_hit_tokens),
    ("prompt_tokens", "Prompt tokens processed.", lambda zone: zone.prompt_tokens),
    ("generation_tokens", "Tokens generated.", lambda zone: zone.generation_tokens),
    ("preemptions", "Times that a running request was sent back to wait.", lambda zone: zone.preemptions),
    (
        "violations",
        "Requests failed because they were about to use a block of another zone. Never normal.",
        lambda zone: zone.violations,
    ),
)


class ReportCollector(Collector):
    """Makes metrics of the newest report when Prometheus asks.

    Args:
        read_report: the newest report.
    """

    def __init__(self, read_report: Callable[[], EngineReport]) -> None:
        self._read_report = read_report

    def collect(self) -> Iterator[Metric]:
        report = self._read_report()
        yield from _engine_metrics(report)
        yield from _config_metrics(report.config)
        yield from _zone_metrics(report.zones)


def _engine_metrics(report: EngineReport) -> Iterator[Metric]:
    engine = {"vllm_version": report.engine_version, "pod": report.pod}
    yield InfoMetricFamily("tenantzone_engine", "The engine that this is.", value=engine)
    yield _gauge("engine_capacity_blocks", "KV-cache blocks that requests can use.", report.capacity_blocks)
    yield _gauge("engine_free_blocks", "KV-cache blocks that nobody holds.", report.free_blocks)
    yield _gauge("engine_block_size_tokens", "Tokens that one KV-cache block holds.", report.block_size_tokens)
    yield _gauge("engine_start_time_seconds", "Unix time at which the engine started.", report.started_unix_time)
    yield _gauge("report_time_seconds", "Unix time at which these numbers were taken.", report.published_unix_time)


def _config_metrics(config: ConfigStatus) -> Iterator[Metric]:
    applied, rejected = config.applied_generation is not None, config.rejected is not None
    yield _gauge(
        "config_generation", "Generation of the config in force; 0 if none is.", config.applied_generation or 0
    )
    yield _gauge(
        "config_last_reload_successful", "1 if the newest config file is in force, else 0.", applied and not rejected
    )
    yield _gauge(
        "config_last_reload_success_timestamp_seconds",
        "Unix time at which the config in force was applied; 0 if none is.",
        config.applied_unix_time or 0,
    )
    yield _gauge("config_rejected", "1 if the newest config file was refused, else 0.", rejected)


def _zone_metrics(zones: tuple[ZoneReport, ...]) -> Iterator[Metric]:
    for name, text, value_of in _ZONE_GAUGES:
        gauge = GaugeMetricFamily(f"tenantzone_zone_{name}", text, labels=_ZONE_LABELS)
        for zone in zones:
            gauge.add_metric(_labels(zone), value_of(zone))
        yield gauge
    for name, text, value_of in _ZONE_COUNTERS:
        counter = CounterMetricFamily(f"tenantzone_zone_{name}", text, labels=_ZONE_LABELS)
        for zone in zones:
            counter.add_metric(_labels(zone), value_of(zone))
        yield counter
    yield _evictions(zones)
    yield _states(zones)


def _evictions(zones: tuple[ZoneReport, ...]) -> Metric:
    counter = CounterMetricFamily(
        "tenantzone_zone_evicted_blocks",
        "Cached KV-cache blocks that the zone lost, by reason.",
        labels=(*_ZONE_LABELS, "reason"),
    )
    for zone in zones:
        # Every reason from the start: a rate needs a zero to rise from.
        for reason in get_args(EvictionReason):
            counter.add_metric((*_labels(zone), reason), zone.evicted_blocks.get(reason, 0))
    return counter


def _states(zones: tuple[ZoneReport, ...]) -> Metric:
    gauge = GaugeMetricFamily(
        "tenantzone_zone_state", "1 for the state that the zone is in, else 0.", labels=(*_ZONE_LABELS, "state")
    )
    for zone in zones:
        for state in get_args(ZoneState):
            gauge.add_metric((*_labels(zone), state), zone.state == state)
    return gauge


def _labels(zone: ZoneReport) -> tuple[str, str]:
    return zone.name, zone.tenant


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tenantzone_{name}", text, value=value)
