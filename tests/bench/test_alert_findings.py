"""The bench that gave the alerts their thresholds counts what Prometheus would have done."""

import io
import re
from pathlib import Path

import pytest
import yaml

from bench.alerts.findings import Day, _firings, tables
from bench.alerts.history import BEGINNING, History
from bench.alerts.loads import FLOOD_STARTS, loads
from bench.alerts.queries import expand, serving
from bench.alerts.signals import SIGNALS, shipped
from bench.simulator.engine import Model
from bench.simulator.simulation import Plan, Simulation
from tests.monitoring.promtool import promtool


def test_an_alert_fires_once_for_each_stretch_that_lasts_long_enough():
    minute = [30.0 * step for step in range(3)]
    later = [600 + at for at in minute]
    assert list(_firings([*minute, *later], 60)) == [60, 660]
    assert list(_firings([*minute, *later], 90)) == []
    assert list(_firings([*minute, *later], 0)) == [0, 600]


def test_names_of_recording_rules_become_what_they_stand_for(tmp_path: Path):
    expressions = [expand(each.expression) for each in (*shipped(), *SIGNALS)]
    assert not any("tenantzone:" in expression for expression in expressions)
    assert "[1h:15s] offset 5m" in expand("avg_over_time(tenantzone:zone_hit_ratio:rate5m[1h] offset 5m)")
    rules = [{"record": f"expression:{number}", "expr": each} for number, each in enumerate(expressions)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yaml")


def test_the_history_has_each_metric_that_an_alert_asks_for():
    """Otherwise the bench would report that an alert never fires."""
    asked = " ".join(expand(each.expression) for each in (*shipped(), *SIGNALS))
    simulation = Simulation(Plan(requests=1, tenants=1, model=Model(capacity=64)))
    history, written = History(simulation), io.StringIO()
    for _ in simulation.run():
        history.note()
    history.write(written)
    # The simulated days have no zone with a target, and the simulated engine does not count how tokens are processed.
    absent = ["tenantzone_zone_latency_target_met", "tenantzone_zone_processed_tokens_total"]
    for name in absent:
        asked = asked.replace(name, "")
    assert set(re.findall(r"\btenantzone_\w+", asked)) <= set(re.findall(r"^\w+", written.getvalue(), re.MULTILINE))


def test_each_alert_with_a_threshold_is_compared_with_other_thresholds():
    without = {alert.name for alert in shipped()} - {signal.alert for signal in SIGNALS}
    # A target's threshold is the user's, and the simulated engine does not count how tokens are processed.
    assert without == {"TenantZoneGuardViolation", "TenantZoneLatencyTargetMissed", "TenantZoneRecomputing"}


def test_prometheus_is_given_what_the_simulated_engine_had(tmp_path: Path):
    simulation = Simulation(Plan(requests=300, tenants=4, model=Model(capacity=1_024)))
    history = History(simulation)
    for _ in simulation.run():
        history.note()
    with serving(history, tmp_path) as prometheus:
        found = prometheus.ask("tenantzone:zone_held_blocks", BEGINNING, BEGINNING + simulation.engine.now, 15)
    held = {
        zone.spec.name: [value for _, value in found[zone.spec.name]]
        for zone in simulation.engine.ledger.zones.values()
    }
    assert len(held) > 1
    assert all(0 <= value <= 1_024 for values in held.values() for value in values)
    assert any(value > 0 for values in held.values() for value in values)


@pytest.mark.parametrize(("at", "column"), [(FLOOD_STARTS - 60, 0), (FLOOD_STARTS + 60, 1)])
def test_the_days_with_the_flood_before_and_in_it_are_distinguished(at: float, column: int):
    days = [Day(load, 2 * FLOOD_STARTS, 0.5) for load in loads(tenants=2, seed=1)]
    asked = {alert.expression: alert.name for alert in shipped()} | {signal.expression: "" for signal in SIGNALS}
    for day in days:
        day.found = {expression: {} for expression in asked}
    (violation,) = (each.expression for each in shipped() if each.name == "TenantZoneGuardViolation")
    days[-1].found[violation] = {"acme": [(BEGINNING + at, 1.0)]}
    (row,) = (line for line in tables(days) if "TenantZoneGuardViolation" in line)
    assert [int(cell) for cell in row.split()[-2:]] == [column == 0, column == 1]
