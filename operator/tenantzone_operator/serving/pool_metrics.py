"""Computes metrics from the current state of this process at each scrape.

The only object names in labels are those of pools and engine pods.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from tenantzone_operator.kube.conditions import Reason, Type
from tenantzone_operator.kube.store import Key
from tenantzone_operator.metrics.family import Family, gauge, info
from tenantzone_operator.pool.outcome import EngineState, Outcome

_POOL = ("pool_namespace", "pool")
_CONDITIONS = (Type.ACCEPTED, Type.PROGRAMMED, Type.READY)
_STATUSES = ("True", "False", "Unknown")

_INFO = info("tenantzone_operator", "The operator that this is.", "version")
_LEADING = gauge("tenantzone_operator_leading", "Whether this process leads: 1, or 0 while it stands by.")
_AGE = gauge(
    "tenantzone_operator_seconds_since_reconcile",
    "Seconds since the oldest last reconcile of any pool. Only on the leader.",
)
_WITHOUT_PODS = gauge(
    "tenantzone_operator_pools_without_pods",
    "Served pools whose pods could not be listed for two and a half minutes, so that their engines may have changed. "
    "A pool whose status says PoolNotServed does not count. Only on the leader.",
)
_MANAGER_ANSWERS = gauge(
    "tenantzone_operator_manager_answers",
    "Whether the KV-cache manager answered the last request: 1, or 0. Only on a leader with --manager-url.",
)
_ZONES = gauge(
    "tenantzone_pool_zones",
    "TenantZones by the status of a condition, including zones whose pool does not exist.",
    *_POOL,
    "condition",
    "status",
)
_OVERCOMMITTED = gauge(
    "tenantzone_pool_overcommitted_zones",
    "TenantZones that are not accepted because their reservation does not fit into the pool.",
    *_POOL,
)
_ENGINES = gauge("tenantzone_pool_engines", "Ready engines by their state for the newest config.", *_POOL, "state")
# The label is not named pod, because Prometheus adds a label pod with the name of the scraped pod, which is the
# operator's pod.
_ENGINE_GENERATION = gauge(
    "tenantzone_pool_engine_generation",
    "Generation of the config that an engine has applied, 0 for none. Absent while the engine does not answer.",
    *_POOL,
    "engine",
)
_ENGINE_REJECTED = gauge(
    "tenantzone_pool_engine_rejected",
    "Whether an engine refuses the newest config: 1, or 0. Absent while the engine does not answer.",
    *_POOL,
    "engine",
)

_FROM_STATUS: tuple[tuple[Family, str], ...] = tuple(
    (gauge(f"tenantzone_pool_{name}", text, *_POOL), field)
    for name, text, field in (
        ("generation", "Generation of the newest config that was published for the pool.", "configGeneration"),
        ("capacity_blocks", "KV-cache blocks per engine into which reservations must fit.", "capacityBlocks"),
        ("reserved_blocks", "KV-cache blocks that are reserved in an engine of that size.", "reservedBlocks"),
        ("config_bytes", "Size of the newest config.", "configBytes"),
    )
)

FAMILIES = (
    _INFO,
    _LEADING,
    _AGE,
    _WITHOUT_PODS,
    _MANAGER_ANSWERS,
    _ZONES,
    _OVERCOMMITTED,
    _ENGINES,
    _ENGINE_GENERATION,
    _ENGINE_REJECTED,
    *(family for family, _ in _FROM_STATUS),
)
"""Metric families that this module computes at each scrape."""


class OperatorCollector(Collector):
    """Collects the metrics of this process and its pools at each scrape.

    Args:
        is_leading: returns whether this process is the leader now.
        age_seconds: returns the result of ``Reconciler.age_seconds``; None on a standby.
        without_pods: returns the number of served pools whose pods are unknown, and the number of all served pools.
        outcomes: returns the outcome of each pool's last reconcile; empty on a standby.
        manager_answers: returns whether the KV-cache manager answers; None if unknown or without a manager.
    """

    def __init__(
        self,
        is_leading: Callable[[], bool],
        age_seconds: Callable[[], float | None],
        without_pods: Callable[[], tuple[int, int]],
        outcomes: Callable[[], Mapping[Key, Outcome]],
        manager_answers: Callable[[], bool | None],
    ) -> None:
        self._is_leading = is_leading
        self._age_seconds = age_seconds
        self._without_pods = without_pods
        self._outcomes = outcomes
        self._manager_answers = manager_answers

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("tenantzone_operator", _INFO.help, value={"version": _version()})
        is_leading, age = self._is_leading(), self._age_seconds()
        yield GaugeMetricFamily(_LEADING.name, _LEADING.help, value=is_leading)
        # Check is_leading, too, because a process that has lost the Lease may still be ending its term.
        if not is_leading or age is None:
            return
        yield GaugeMetricFamily(_AGE.name, _AGE.help, value=age)
        yield GaugeMetricFamily(_WITHOUT_PODS.name, _WITHOUT_PODS.help, value=self._without_pods()[0])
        answers = self._manager_answers()
        if answers is not None:
            yield GaugeMetricFamily(_MANAGER_ANSWERS.name, _MANAGER_ANSWERS.help, value=answers)
        yield from _pool_metrics(self._outcomes())


def _pool_metrics(outcomes: Mapping[Key, Outcome]) -> Iterator[Metric]:
    existing = {key: outcome for key, outcome in outcomes.items() if outcome.pool is not None}
    yield _zones(outcomes)
    yield _gauge(_OVERCOMMITTED, {key: _overcommitted(outcome) for key, outcome in existing.items()})
    for family, field in _FROM_STATUS:
        yield _gauge(
            family, {key: pool[field] for key, outcome in existing.items() if field in (pool := outcome.pool or {})}
        )
    yield _engines(existing)
    answering = {
        (*key, engine.pod): engine
        for key, outcome in existing.items()
        for engine in outcome.engines
        if engine.state != "unreachable"
    }
    yield _gauge(_ENGINE_GENERATION, {key: engine.generation or 0 for key, engine in answering.items()})
    yield _gauge(_ENGINE_REJECTED, {key: engine.state == "rejected" for key, engine in answering.items()})


def _zones(outcomes: Mapping[Key, Outcome]) -> Metric:
    values = {}
    for key, outcome in outcomes.items():
        counts = Counter(
            (condition["type"], condition["status"])
            for status in outcome.zones.values()
            for condition in status["conditions"]
        )
        for kind in _CONDITIONS:
            for status in _STATUSES:
                values[*key, kind.lower(), status.lower()] = counts[kind, status]
    return _gauge(_ZONES, values)


def _overcommitted(outcome: Outcome) -> int:
    return sum(
        condition["type"] == Type.ACCEPTED and condition["reason"] == Reason.POOL_OVERCOMMITTED
        for status in outcome.zones.values()
        for condition in status["conditions"]
    )


def _engines(outcomes: Mapping[Key, Outcome]) -> Metric:
    values = {}
    for key, outcome in outcomes.items():
        counts = Counter(engine.state for engine in outcome.engines)
        for state in get_args(EngineState):
            values[*key, state] = counts[state]
    return _gauge(_ENGINES, values)


def _gauge(family: Family, values: Mapping[Any, float]) -> Metric:
    """Returns a gauge with a sample for each tuple of label values."""
    metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in values.items():
        metric.add_metric(labels, value)
    return metric


def _version() -> str:
    try:
        return version("tenantzone")
    except PackageNotFoundError:  # The operator runs from the source tree, which has no version.
        return ""
