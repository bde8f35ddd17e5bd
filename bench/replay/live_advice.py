"""Measures the effect of live advice: the operator's advisor reads reports of vLLM's real scheduler, in virtual time.

The load lasts hours. Every ten virtual seconds the advisor gets the engine's report, as in the operator, and the advice
in the pool's status is applied, as in mode Auto. For each window the bench prints the active config, the hits, and the
latency of tenants with a target.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tenantzone_contract.reports.report import ConfigStatus, dump_report, parse_report
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.eviction_policies import EVICTION_POLICIES
from tenantzone_operator.advice.advisor import Advisor, Moment
from tenantzone_operator.advice.overlay import Overlay
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.views import view
from tenantzone_operator.kube.resources import Pool, Zone, read_pool, read_zone
from tenantzone_replay.simulation.clock import UNIX_TIME, VirtualClock
from tenantzone_replay.simulation.hardware import MODELS
from tenantzone_replay.simulation.measures import Target, TenantMeasures
from tenantzone_replay.simulation.policies import Policy
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.traces.load import Asked
from tenantzone_replay.traces.made_up import Chats
from tenantzone_replay.traces.mix import Source, mixed
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape

_LOOK_SECONDS: Final = 10.0
_WARM_UP_SECONDS: Final = 300.0
"""Time without advice, because the effect of a growing load can't be distinguished from a harmful change."""
_BOUNDS: Final = {
    "limit": {"min": "10%", "max": "90%"},
    "weight": {"min": 1, "max": 16},
    "ttl": {"min": "10s", "max": "24h"},
    "evictionPolicies": list(EVICTION_POLICIES),
    "watermarks": {"min": 0, "max": 0.5},
}


@dataclass(frozen=True, slots=True)
class Scene:
    """Tenants, with zones that were configured without knowledge of their demand."""

    zones: Mapping[str, Mapping[str, Any]]
    """Specs of the zones, by name."""
    loads: Mapping[str, Chats]
    watermarks: Mapping[str, float]
    blocks: int
    """Number of blocks, of 64 tokens each."""


def scenes(seconds: float) -> dict[str, Scene]:
    """Returns the scenes by name."""
    # The chats are short, so that after some minutes as many chats end as begin.
    chats = Chats(tenants=1, seconds=seconds, chats=0.3, turns=5, pause=20, answer=64)
    none = {"low": 0.0, "high": 0.0}
    return {
        "a limit that is too low": Scene(
            {"chat": {"limit": "20%"}, "rest": {}}, {"chat": chats, "rest": replace(chats, chats=0.03)}, none, 1500
        ),
        "a time to keep that is too short": Scene(
            {"chat": {"retention": {"ttl": "20s"}}, "rest": {}},
            {"chat": chats, "rest": replace(chats, chats=0.03)}, none, 3000,
        ),
        "watermarks that are too high": Scene(
            {"chat": {}, "rest": {}}, {"chat": chats, "rest": chats}, {"low": 0.6, "high": 0.8}, 1500
        ),
        "a borrower in the way of a target": Scene(
            {"chat": {"reserved": "10%", "latency": {"firstToken": "500ms"}}, "flood": {}},
            {"chat": chats, "flood": replace(chats, chats=2.5, turns=1, said=2048, system=0, answer=256)}, none, 800,
        ),
    }  # fmt: skip


class Tuned:
    """A pool whose engine reports to the advisor and gets the advised configs."""

    def __init__(self, scene: Scene, window: float, mode: str) -> None:
        advice = {"mode": mode, "window": f"{window:.0f}s", "bounds": _BOUNDS}
        self._pool = read_pool(_body("pool", {"selector": {}, "advice": advice, "watermarks": scene.watermarks}))
        self._zones = [read_zone(_body(name, {"pool": "pool", **spec})) for name, spec in scene.zones.items()]
        self._advisor, self._overlay = Advisor(), Overlay()
        self.status: dict[str, Any] = {}
        self.config = self._planned(None)

    def _planned(self, before: RuntimeConfig | None) -> RuntimeConfig:
        in_force = self._overlay.over(replace(self._pool, status=self.status), self._zones)
        assert in_force.pool is not None, "there is one"
        assert in_force.pool.config is not None, in_force.pool.invalid
        entries = tuple(zone.config for zone in in_force.zones if zone.config is not None)
        if before is not None and (before.pool, before.zones) == (in_force.pool.config, entries):
            return before
        return make_config(1 if before is None else before.generation + 1, in_force.pool.config, entries)

    def look(self, report: bytes, now: float) -> None:
        """Have the advisor process a report, and prepare the next config."""
        stored: Pool = replace(self._pool, status=self.status)
        zones: Sequence[Zone] = self._zones
        seen = Observation("engine", view(parse_report(report)))
        in_force = self._overlay.over(stored, zones)
        moment = Moment(stored, zones, in_force, [seen], self.config, True, now, UNIX_TIME + now)
        self.status = self._advisor.look(moment, self.status)
        self.config = self._planned(self.config)


def _body(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": "bench", "name": name, "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata | {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}


def live(scene: Scene, seconds: float, window: float, mode: str) -> Iterator[str]:
    """Serve the scene; yields a line for each change and each window."""
    from tenantzone_replay.simulation.tenants_at_work import TenantsAtWork
    from tenantzone_replay.simulation.virtual_engine import VirtualEngine
    from tenantzone_runtime.engine.core.served_scheduler import ServedScheduler
    from tenantzone_runtime.engine.modelless.schedulers import ModellessScheduler
    from tenantzone_runtime.housekeeping.report.reporting import make_report

    def load() -> Iterator[Asked]:
        sources = [Source(Path("chats"), chats=chats, tenant=name) for name, chats in scene.loads.items()]
        return mixed(sources)

    found = profile(load())
    measures = {tenant: TenantMeasures() for tenant in scene.loads}
    tuned, clock, lines = Tuned(scene, window, mode), VirtualClock(), list[str]()
    last = {"look": 0.0, "window": 0.0}
    shape = EngineShape(scene.blocks, 64, longest=max(8192, found.longest))
    with tempfile.TemporaryDirectory() as folder, clock.in_force():
        scheduler = ModellessScheduler(shape, Path(folder), tuned.config, now=clock.monotonic)
        served = ServedScheduler(scheduler.scheduler)
        before: dict[str, tuple[int, int]] = {}

        def look(now: float) -> None:
            if now - last["look"] < _LOOK_SECONDS:
                return
            last["look"], config = now, tuned.config
            if now < _WARM_UP_SECONDS:
                return
            acknowledged = ConfigStatus(applied_generation=config.generation, applied_hash=config.hash)
            report = make_report(served, acknowledged, pod="engine", started_unix_time=0.0)
            known = tuned.status.get("adjustments", [])
            tuned.look(dump_report(report), now)
            if tuned.config is not config:
                scheduler.scheduler.apply_config(tuned.config)
            lines.extend(f"    {now:7,.0f} s  {line}" for line in _adjustments(tuned.status, known))
            if now - last["window"] >= window:
                last["window"] = now
                figures = []
                for zone in report.zones:
                    queried, hit = before.get(zone.name, (0, 0))
                    before[zone.name] = zone.prefix_query_tokens, zone.prefix_hit_tokens
                    rate = (zone.prefix_hit_tokens - hit) / max(1, zone.prefix_query_tokens - queried)
                    target = zone.latency.first_token if zone.latency is not None else None
                    late = f", {target.actual_seconds:.2f} s" if target is not None and target.actual_seconds else ""
                    figures.append(f"{zone.name} {rate:6.1%}{late}")
                lines.append(f"    {now:7,.0f} s  {'; '.join(figures)}")

        tenants = TenantsAtWork(
            load(), scheduler, Policy("zones", "zones", zones=tuned.config.zones), measures, Target(), clock.seconds
        )
        engine = VirtualEngine(scheduler, clock, MODELS["8b"].on(1), tenants, steps_in_flight=1, look=look)
        engine.run(lambda: clock.seconds >= seconds)
    yield from lines


def _adjustments(status: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in status.get("adjustments", []):
        if row in known:
            continue
        what = f"{row['field']} of {row['zone']}" if "zone" in row else row["field"]
        yield f"{row['state']}: {what} {row.get('spec', 'unset')} -> {row['value']}: {row.get('message', '')}"


def main() -> None:
    """Print the result of each scene."""
    every = scenes(1.0)
    parser = argparse.ArgumentParser(prog="python -m bench.replay.live_advice", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="virtual ones (default: %(default)s)")
    parser.add_argument("--window", type=float, default=600.0, help="in seconds (default: %(default)s)")
    parser.add_argument("--mode", choices=("Auto", "Recommend"), default="Auto", help="default: %(default)s")
    parser.add_argument("--scenes", nargs="+", choices=every, default=list(every), help="default: all of them")
    options = parser.parse_args()
    seconds = 3600 * options.hours
    for name in options.scenes:
        print(name, flush=True)
        for line in live(scenes(seconds)[name], seconds, options.window, options.mode):
            print(line, flush=True)


if __name__ == "__main__":
    main()
