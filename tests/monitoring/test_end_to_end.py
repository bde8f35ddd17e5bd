"""All parts real: a flood in an engine, an operator, a Prometheus with the shipped rules, an Alertmanager.

Rules and scrape config are the shipped ones, made from the same source with time scaled down: five minutes become
twenty-five seconds. The test provides what Kubernetes' discovery would, and applies the shipped relabelling.
"""

import itertools
import json
import math
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import Cluster
from hack.monitoring.files import RUNBOOKS
from hack.monitoring.model import rule_file
from hack.monitoring.panels import rows
from hack.monitoring.panels.manager import manager
from hack.monitoring.panels.tiers import tiers
from hack.monitoring.rules import groups
from hack.monitoring.scraping import pod_labels, scrape_config, without_cluster
from hack.monitoring.time_scale import TimeScale
from hack.ports import free_address
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION
from tests.engine.real_engine import ADMIN_PORT, API_PORT, RealEngine
from tests.flooding import BLOCK_TOKENS, ask, text
from tests.kubelet import engine_pod, kubelet
from tests.monitoring.servers import ALERTMANAGER_PORT, PORTS, Prometheus, Webhook, alertmanager, prometheus
from tests.operator.conftest import Operator
from tests.operator.kube import eventually

pytestmark = [pytest.mark.engine, pytest.mark.controlplane]

TIME_SCALE = TimeScale(1 / 12)
NAMESPACE = "monitoring"
ENGINE = "engine-0"
METRICS_PORT = 8081
FIRES_WITHIN_SECONDS = 600
"""Seconds; less than a minute on an idle machine."""
PAUSE_SECONDS = 2.0
"""Seconds between two prompts of `archive`: long enough to be noticed as idle each time, on a busy machine too."""

VICTIM = {"namespace": NAMESPACE, "pod": ENGINE, "pool": "demo", "zone": "archive", "tenant": "archive"}


@dataclass(frozen=True)
class Stage:
    engine: RealEngine
    prometheus: Prometheus
    webhook: Webhook


@pytest.fixture(scope="module")
def stage(
    engine: RealEngine, control_plane: Cluster, operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """A pool of one real engine: `vault` is protected, `archive` is quiet most of the time, `crowd` will flood."""
    folder = tmp_path_factory.mktemp("monitoring")
    engine.add_keys("vault", "archive", "crowd")
    address = free_address(METRICS_PORT, *PORTS)
    control_plane.create_namespace(NAMESPACE)
    control_plane.kubectl("apply", "--namespace", NAMESPACE, "--filename=-", stdin=json.dumps(_objects()))
    metrics = ("--metrics-host", address, "--metrics-port", str(METRICS_PORT))
    with (
        _operator(operator_kubeconfig, folder / "operator.log", "--no-leader-elect", *metrics),
        kubelet(control_plane, NAMESPACE, ENGINE, engine, folder / "kubelet.log"),
        alertmanager(address, folder) as webhook,
        prometheus(address, folder, _config(folder, address, engine)) as running,
    ):
        wait = ("wait", "--for=condition=Ready", "tenantzones", "--all", "--timeout=120s")
        control_plane.kubectl("--namespace", NAMESPACE, *wait)
        yield Stage(engine, running, webhook)
    control_plane.delete_namespace(NAMESPACE)


@contextmanager
def _operator(kubeconfig: Path, log: Path, *flags: str) -> Iterator[None]:
    operator = Operator(kubeconfig, log, *flags)
    operator.start()
    try:
        yield
    finally:
        assert operator.stop() == 0, operator.log


def _objects() -> dict[str, object]:
    def ours(kind: str, name: str, **spec: object) -> dict[str, object]:
        return {"apiVersion": "tenantzone.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}

    items = [
        ours("ZonePool", "demo", selector={"matchLabels": {"app": "vllm"}}),
        ours("TenantZone", "vault", pool="demo", reserved="40%", priority=10),
        ours("TenantZone", "archive", pool="demo", idle={"after": "100ms"}),
        ours("TenantZone", "crowd", pool="demo", latency={"firstToken": "1m"}),
        engine_pod(ENGINE, {"app": "vllm"}, "demo"),
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _config(folder: Path, address: str, engine: RealEngine) -> dict[str, Any]:
    rules = folder / "rules.yaml"
    rules.write_text(yaml.safe_dump(rule_file(groups(TIME_SCALE), RUNBOOKS)))
    token = folder / "token"
    token.write_text("token")
    managers = [{"static_configs": [{"targets": [f"{address}:{ALERTMANAGER_PORT}"]}]}]
    return without_cluster(scrape_config([str(rules)], managers, TIME_SCALE, str(token)), _pods(address, engine))


def _pods(address: str, engine: RealEngine) -> list[dict[str, Any]]:
    """The pods as a cluster would list them: some ports have no metrics, and some pods are not ours."""

    def pod(target: str, *labels: Any) -> dict[str, Any]:
        return {"targets": [target], "labels": pod_labels(*labels)}

    ours, operator = [CONFIG_HASH_ANNOTATION], {"app.kubernetes.io/name": "tenantzone-operator"}
    system = "tenantzone-system"
    return [
        pod(f"{engine.address}:{ADMIN_PORT}", NAMESPACE, ENGINE, "admin", {"app": "vllm"}, ours),
        pod(f"{engine.address}:{API_PORT}", NAMESPACE, ENGINE, "http", {"app": "vllm"}, ours),
        pod(f"{address}:1", NAMESPACE, "web", "admin", {}, []),
        pod(f"{address}:{METRICS_PORT}", system, "tenantzone-operator-0", "metrics", operator, []),
        pod(f"{address}:2", system, "tenantzone-operator-0", "probes", operator, []),
    ]


@contextmanager
def flood(engine: RealEngine) -> Iterator[None]:
    """Prompts that are sent only once; meanwhile `archive` repeats the same ones."""
    over, numbers = threading.Event(), itertools.count()

    def crowd() -> None:
        while not over.is_set():
            ask(engine, "crowd", text(f"Flood {next(numbers)}", 30))

    def archive() -> None:
        while not over.wait(PAUSE_SECONDS):
            ask(engine, "archive", text("The archive", 20))

    with ThreadPoolExecutor(3) as asking:
        running = [asking.submit(crowd), asking.submit(crowd), asking.submit(archive)]
        try:
            yield
        finally:
            over.set()
    for one in running:
        one.result()


def test_the_shipped_scrape_config_finds_the_engine_and_the_operator_and_nothing_else(stage: Stage):
    wanted = {("tenantzone-engines", ENGINE, "up"), ("tenantzone-operator", "tenantzone-operator-0", "up")}

    def found() -> bool:
        targets = stage.prometheus.targets()
        seen = {(target["labels"]["job"], target["labels"]["pod"], target["health"]) for target in targets}
        assert seen == wanted, targets
        return True

    eventually(found)


def test_a_flood_makes_the_alert_of_the_zone_that_loses_its_cache_fire_and_resolve(stage: Stage):
    engine, webhook, alert = stage.engine, stage.webhook, "TenantZoneEvictionsHigh"
    document = text("The vault", 60)
    ask(engine, "vault", document)
    with flood(engine):
        firing = eventually(lambda: reported(stage, "firing", alert), timeout=FIRES_WITHIN_SECONDS)
        assert empty_panels(stage.prometheus) == []
    resolved = eventually(lambda: reported(stage, "resolved", alert), timeout=FIRES_WITHIN_SECONDS)

    print(f"\nfiring:\n{json.dumps(firing, indent=2)}\nresolved:\n{json.dumps(resolved, indent=2)}")
    assert firing["annotations"]["runbook_url"] == f"{RUNBOOKS}/{alert}.md"
    assert resolved["endsAt"] > resolved["startsAt"]
    assert webhook.reported("firing", alert, zone="vault") is None
    assert ask(engine, "vault", document) == 60 * BLOCK_TOKENS


def test_kubectl_prints_of_each_zone_what_the_engine_counts(stage: Stage, control_plane: Cluster):
    def shown() -> bool:
        printed = control_plane.kubectl("--namespace", NAMESPACE, "get", "tenantzones").stdout
        rows = {row["NAME"]: row for row in table(printed)}
        for zone in ("vault", "archive"):
            columns = tuple(rows[zone][name] for name in ("STATE", "HELD", "HIT%", "EVICTIONS"))
            assert columns == counted(stage.prometheus, zone), printed
        return True

    eventually(shown)


def table(printed: str) -> list[dict[str, str]]:
    """The rows of a table by the names of its columns; cells may be empty."""
    header, *lines = printed.splitlines()
    starts = [(found[0], found.start()) for found in re.finditer(r"\S+", header)]
    ends = [start for _, start in starts[1:]] + [None]
    return [{name: line[start:end].strip() for (name, start), end in zip(starts, ends, strict=True)} for line in lines]


def counted(prometheus: Prometheus, zone: str) -> tuple[str, ...]:
    """State, held blocks, hit rate and evictions of a zone, by the engine's own metrics."""

    def total(name: str) -> int:
        # Labelled series are left out while they are zero.
        (series,) = prometheus.ask(f'sum(tenantzone_zone_{name}{{zone="{zone}"}}) or vector(0)')
        return int(series["value"][1])

    (state,) = prometheus.ask(f'tenantzone_zone_state{{zone="{zone}"}} == 1')
    hits, queries = total("prefix_hit_tokens_total"), total("prefix_query_tokens_total")
    held = total("blocks_in_use") + total("blocks_cached")
    return state["metric"]["state"], str(held), str(100 * hits // queries), str(total("evicted_blocks_total"))


def reported(stage: Stage, status: str, alert: str) -> dict[str, Any]:
    """The webhook's content about the victim's alert.

    Raises:
        AssertionError: it has not arrived yet; the message says how far it is.
    """
    found = stage.webhook.reported(status, alert, **VICTIM)
    looks_at = "tenantzone:zone_(taken_blocks:increase5m|held_blocks:max5m)|ALERTS"
    assert found, stage.prometheus.ask(f'{{__name__=~"{looks_at}", zone="archive"}}')
    return found


def test_nothing_that_is_well_is_called_broken(stage: Stage):
    broken = {
        "TenantZoneReservationNotHeld",
        "TenantZoneLoansOverdue",
        "TenantZoneGuardViolation",
        "TenantZoneConfigRejected",
        "TenantZoneEngineLagging",
        "TenantZonePoolOvercommitted",
        "TenantZoneNotAccepted",
        "TenantZoneOperatorDown",
        "TenantZoneOperatorWithoutLeader",
    }
    assert broken.isdisjoint(alert["labels"]["alertname"] for alert in stage.webhook.alerts)


def empty_panels(prometheus: Prometheus) -> list[str]:
    """Queries of the dashboard that have no series, or none with a number.

    Leaves out those about tiers, which this engine does not have (see test_tier_panels.py), and the one that is empty
    while no zone waits.
    """
    variables = {"$__rate_interval": TIME_SCALE(30), "$namespace": ".*", "$pool": ".*", "$zone": ".*"}
    empty = []
    for panel in (panel for row in rows() if row not in (tiers(), manager()) for panel in row.panels):
        if panel.title == "Time of waiting by reason":
            continue
        for query in panel.queries:
            expression = query.expression
            for name, value in variables.items():
                expression = expression.replace(name, value)
            values = [float(series["value"][1]) for series in prometheus.ask(expression)]
            if all(map(math.isnan, values)):
                empty.append(f"{panel.title}: {expression}")
    return empty
