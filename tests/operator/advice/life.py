"""A pool that is advised, with an engine that follows the advice."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tenantzone_contract.reports.zone_report import LatencyReport, TargetReport
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.eviction_policies import EVICTION_POLICIES
from tenantzone_operator.advice.adjustment import Field
from tenantzone_operator.advice.advisor import Advisor, Moment
from tenantzone_operator.advice.overlay import Overlay
from tenantzone_operator.advice.values import value_of, value_of_pool
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.views import EngineView, ZoneView
from tenantzone_operator.kube.resources import Pool, Zone
from tests.operator.objects import pool, zone

WINDOW = 100.0
BLOCKS = 1000
ALL: dict[str, Any] = {
    "limit": {"min": "20%", "max": "80%"},
    "weight": {"min": 1, "max": 8},
    "ttl": {"min": "1m", "max": "1h"},
    "evictionPolicies": list(EVICTION_POLICIES),
    "watermarks": {"min": 0, "max": 0.5},
}
KEPT = {"zone": "acme", "field": "weight", "spec": "1", "value": "2", "state": "Kept", "since": "2023-11-14T22:13:20Z"}


def auto(**spec: Any) -> Pool:
    return pool(advice={"mode": "Auto", "window": "100s", "bounds": ALL} | spec.pop("advice", {}), **spec)


def seen(**figures: Any) -> ZoneView:
    """An idle zone with the given changes; ``ratio`` and ``why`` belong to its latency target."""
    ratio, why = figures.pop("ratio", None), figures.pop("why", "Neighbours")
    latency = None
    if ratio is not None:
        latency = LatencyReport(TargetReport(target_seconds=1.0, actual_seconds=ratio, reason=why))
    empty: dict[str, Any] = dict.fromkeys(
        ("in_use", "cached", "lent", "borrowed", "prefix_query_tokens", "prefix_hit_tokens", "blocks_evicted"), 0
    )
    empty |= {"generation": 1, "state": "Active", "reserved": 0, "limit": BLOCKS, "taken_back": 0, "awaited_seats": 0}
    empty |= {"computed_first_tokens": 0, "recomputed_tokens": 0}
    return ZoneView(**(empty | figures), latency=latency)


def engine(*, generation: int = 1, config_hash: str = "", **zones: ZoneView) -> EngineView:
    return EngineView(BLOCKS, 16, generation, config_hash, "", False, "", "", zones, None, "", False, "", {})


COUNTED = (
    *("prefix_query_tokens", "prefix_hit_tokens"),
    *("evicted_by_limit", "evicted_by_ttl", "evicted_by_watermark", "evicted_for_room"),
)


@dataclass
class Life:
    """A pool with one engine, which applies each config at once."""

    pool: Pool
    zones: list[Zone]
    behave: Callable[[RuntimeConfig], dict[str, dict[str, Any]]]
    """What zones do in ten seconds under a config; counters are given as increments."""
    status: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    takes_configs: bool = True
    config: RuntimeConfig | None = None

    def __post_init__(self) -> None:
        self.advisor, self.overlay = Advisor(), Overlay()
        self.counted: dict[str, dict[str, int]] = {}
        self.generation = 0
        self.step(0.0)

    def step(self, seconds: float = 10.0) -> None:
        """Lets time pass, delivers the config of the status, and looks at the pool."""
        self.seconds += seconds
        stored = replace(self.pool, status=self.status)
        in_force = self.overlay.over(stored, self.zones)
        assert in_force.pool is not None
        assert in_force.pool.config is not None
        entries = tuple(each.config for each in in_force.zones if each.config is not None)
        if self.config is None or (self.config.zones, self.config.pool) != (entries, in_force.pool.config):
            self.generation += 1
            self.config = make_config(self.generation, in_force.pool.config, entries)
        reported = {}
        for name, figures in self.behave(self.config).items():
            known = self.counted.setdefault(name, dict.fromkeys(COUNTED, 0))
            for counter in COUNTED:
                known[counter] += figures.get(counter, 0)
            reported[name] = seen(**figures | known)
        seen_now = engine(generation=self.generation, config_hash=self.config.hash, **reported)
        self.status = self.advisor.look(
            Moment(
                stored, self.zones, in_force, [Observation("engine-0", seen_now)], self.config, self.takes_configs,
                self.seconds, 1_700_000_000.0 + self.seconds,
            ),
            self.status,
        )  # fmt: skip

    def pass_windows(self, count: float) -> None:
        for _ in range(int(count * WINDOW / 10.0)):
            self.step()

    def restart(self) -> None:
        self.advisor, self.overlay = Advisor(), Overlay()

    @property
    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row.get("zone", ""), row["field"]): row for row in self.status.get("adjustments", [])}

    def has(self, name: str, what: Field) -> str:
        """The engine's value of a zone's field."""
        assert self.config is not None
        if not name:
            return value_of_pool(self.config.pool)
        return value_of(next(each for each in self.config.zones if each.name == name), what)


def weight_of(config: RuntimeConfig, name: str) -> int:
    return next(each.weight for each in config.zones if each.name == name)


def slow_unless_heavy(config: RuntimeConfig) -> dict[str, dict[str, Any]]:
    """A zone that meets its target as soon as it has a weight of 4."""
    return {"acme": {"ratio": 4.0 / weight_of(config, "acme")}, "burst": {}}


def two_zones(**acme: Any) -> list[Zone]:
    return [zone("acme", reserved="20%", **acme), zone("burst")]
