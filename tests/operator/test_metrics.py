"""The operator's metrics after real events."""

import subprocess
from pathlib import Path

import aiohttp
import kopf
import pytest

from hack.controlplane import Cluster, ControlPlane
from hack.debian import ensure
from hack.ports import free_ports
from tenantzone_operator.kube.rest import Rest
from tenantzone_operator.metrics.instruments import verb_and_resource
from tenantzone_operator.serving.exposition import exposition, families
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.replicas import SHORT, replicas_of
from tests.operator.scrape import Scrape
from tests.operator.world import POOL, World, world_in

pytestmark = pytest.mark.controlplane


class Watched:
    """The operator's metrics of one world's pool."""

    def __init__(self, operator: Operator, world: World) -> None:
        self._operator = operator
        self.labels = {"pool_namespace": world.namespace, "pool": POOL}

    def eventually(self, name: str, value: float | None, **labels: str) -> None:
        def look() -> bool:
            found = self._operator.scrape().value(name, **self.labels, **labels)
            assert found == value, f"{name} is {found}"
            return True

        eventually(look)

    def await_counts(self, name: str, label: str, counts: dict[str, int], **labels: str) -> None:
        def look() -> bool:
            found = self._operator.scrape().counts(name, label, **self.labels, **labels)
            assert found == counts, f"{name} is {found}"
            return True

        eventually(look)

    def await_zones(self, condition: str, **counts: int) -> None:
        self.await_counts("tenantzone_pool_zones", "status", counts, condition=condition)

    def await_engines(self, **counts: int) -> None:
        self.await_counts("tenantzone_pool_engines", "state", counts)

    def series(self) -> set[str]:
        return {sample.name for sample in self._operator.scrape().samples(**self.labels)}


@pytest.fixture
def watched(operator: Operator, world: World) -> Watched:
    return Watched(operator, world)


@pytest.fixture
def settled(world: World, watched: Watched) -> World:
    """A pool with a zone that an engine enforces."""
    world.add_pool()
    world.add_zone("acme", reserved="40%")
    world.add_engine(blocks=200)
    world.await_ready("acme")
    watched.await_engines(acknowledged=1)
    return world


def test_a_pool_that_is_as_it_should_be(settled: World, watched: Watched):
    for condition in ("accepted", "programmed", "ready"):
        watched.await_zones(condition, true=1)
    watched.eventually("tenantzone_pool_capacity_blocks", 200)
    watched.eventually("tenantzone_pool_reserved_blocks", 80)
    watched.eventually("tenantzone_pool_overcommitted_zones", 0)
    config = settled.config()
    assert config is not None
    watched.eventually("tenantzone_pool_generation", config.generation)
    watched.eventually("tenantzone_pool_engine_generation", config.generation, engine="engine-0")
    watched.eventually("tenantzone_pool_engine_rejected", 0, engine="engine-0")
    watched.eventually("tenantzone_pool_config_bytes", settled.pool()["status"]["configBytes"])


def test_a_zone_that_does_not_fit(settled: World, watched: Watched):
    settled.add_zone("greedy", reserved="90%")
    settled.await_condition("greedy", "Accepted", "False", "PoolOvercommitted")

    watched.eventually("tenantzone_pool_overcommitted_zones", 1)
    watched.await_zones("accepted", true=1, false=1)


def test_an_engine_that_refuses_the_newest_config(world: World, watched: Watched):
    with world.refusing("not today") as engine:
        watched.await_engines(rejected=1)
        watched.eventually("tenantzone_pool_engine_rejected", 1, engine=engine.name)
        config = world.config()
        assert config is not None
        watched.eventually("tenantzone_pool_generation", config.generation)
        watched.eventually("tenantzone_pool_engine_generation", config.generation - 1, engine=engine.name)
    watched.await_engines(acknowledged=1)


def test_an_engine_that_has_not_got_the_newest_config_yet(settled: World, watched: Watched):
    (engine,) = settled.engines
    apply, engine.sync = engine.sync, lambda: None
    settled.change_zone("acme", reserved="20%")

    watched.await_engines(pending=1)
    engine.sync = apply
    engine.sync()
    watched.await_engines(acknowledged=1)


def test_an_engine_that_does_not_answer(settled: World, watched: Watched, operator: Operator):
    (engine,) = settled.engines
    failed = operator.scrape().value("tenantzone_operator_engine_polls_total", result="failed")
    assert failed is not None

    engine.hang_up()

    watched.await_engines(unreachable=1)
    watched.eventually("tenantzone_pool_engine_generation", None)
    watched.eventually("tenantzone_pool_engine_rejected", None)
    eventually(
        lambda: (operator.scrape().value("tenantzone_operator_engine_polls_total", result="failed") or 0) > failed
    )


def test_an_engine_that_leaves_takes_its_series_along(settled: World, watched: Watched):
    (engine,) = settled.engines
    settled.set_ready(engine, False)

    watched.eventually("tenantzone_pool_engine_generation", None)
    watched.await_engines()


def test_a_deleted_pool_is_reported_only_as_long_as_zones_wait_for_it(settled: World, watched: Watched):
    settled.kube.call("DELETE", settled.pool_path)

    eventually(lambda: watched.series() == {"tenantzone_pool_zones"})
    watched.await_zones("accepted", false=1)
    settled.delete_zone("acme")
    eventually(lambda: watched.series() == set())


def test_work_is_counted(settled: World, operator: Operator):
    def values(scrape: Scrape) -> list[float]:
        found = [
            scrape.value("tenantzone_operator_reconciles_total", result="changed"),
            scrape.value("tenantzone_operator_engine_polls_total", result="ok"),
            scrape.value(
                "tenantzone_operator_api_requests_total", verb="patch", resource="tenantzones/status", code="200"
            ),
            scrape.value("tenantzone_operator_reconcile_seconds_count"),
            scrape.value("tenantzone_operator_api_request_seconds_count", verb="patch"),
        ]
        return [value or 0 for value in found]

    before = values(operator.scrape())
    settled.change_zone("acme", reserved="10%")
    settled.await_ready("acme")

    eventually(lambda: all(now > then for now, then in zip(values(operator.scrape()), before, strict=True)))


async def test_a_request_without_an_answer_is_counted():
    (unused,) = free_ports(1)
    unreachable = kopf.ConnectionInfo(server=f"http://127.0.0.1:{unused}")

    async def log_in() -> kopf.ConnectionInfo:
        return unreachable

    async with Rest(log_in) as rest:
        with pytest.raises(aiohttp.ClientConnectionError):
            await rest.call("GET", "/apis/example.com/v1/things/mine")

    text, _ = exposition()
    metrics = Scrape(text.decode())
    assert metrics.value("tenantzone_operator_api_requests_total", verb="get", resource="things", code="error") == 1


def test_a_standby_reports_nothing_of_pools(
    control_plane: Cluster, kube: Kube, namespace: str, operator_kubeconfig: Path, tmp_path: Path
):
    assert isinstance(control_plane, ControlPlane), "a cluster that was named has no audit log for us"

    def pools(replica: Operator) -> list[str]:
        return [sample.labels["pool"] for sample in replica.scrape().samples("tenantzone_pool_generation")]

    with replicas_of(control_plane, tmp_path) as replicas, world_in(control_plane, kube, namespace) as world:
        world.add_pool()
        world.add_zone("acme", reserved="10%")
        world.add_engine()
        leader, other = replicas.two(*SHORT)
        world.await_ready("acme")
        eventually(lambda: POOL in pools(leader))
        assert leader.scrape().value("tenantzone_operator_leading") == 1
        assert other.scrape().value("tenantzone_operator_leading") == 0
        assert other.scrape().value("tenantzone_operator_seconds_since_reconcile") is None
        assert pools(other) == []

        leader.stop()

        eventually(lambda: POOL in pools(other))
        assert other.scrape().value("tenantzone_operator_leading") == 1


def test_all_that_is_reported_was_declared(settled: World, operator: Operator):
    # This operator has no KV-cache manager; test_cache_manager.py covers the metrics of one.
    declared = {family.name: family for family in families() if family.name != "tenantzone_operator_manager_answers"}
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    labels = {
        family.name + part: set(family.labels) | ({"le"} if part == "_bucket" else set())
        for family in declared.values()
        for part in parts.get(family.type, ("",))
    }
    reported = [sample for sample in operator.scrape().samples() if sample.name.startswith("tenantzone_")]

    assert {sample.name: set(sample.labels) for sample in reported} == labels
    helps = {family.name: family.documentation for family in operator.scrape().families}
    for name, family in declared.items():
        assert helps[name.removesuffix("_total")] == family.help


def test_promtool_finds_nothing_to_say(settled: World, operator: Operator):
    check = subprocess.run(
        [ensure("promtool"), "check", "metrics"], input=operator.scrape().text, capture_output=True, text=True
    )
    assert (check.returncode, check.stdout + check.stderr) == (0, "")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/apis/tenantzone.io/v1alpha1/tenantzones", ("list", "tenantzones")),
        ("GET", "/api/v1/namespaces/default/pods", ("list", "pods")),
        ("GET", "/api/v1/namespaces/default/configmaps/tenantzone-demo", ("get", "configmaps")),
        ("PATCH", "/apis/tenantzone.io/v1alpha1/namespaces/a/zonepools/b/status", ("patch", "zonepools/status")),
        ("POST", "/apis/events.k8s.io/v1/namespaces/a/events", ("create", "events")),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", ("update", "leases")),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", ("create", "tokenreviews")),
        ("GET", "/api/v1/namespaces/default", ("get", "namespaces")),
        ("GET", "/version", ("get", "other")),
    ],
)
def test_a_request_is_named_by_what_it_does_and_never_by_the_objects_name(method, path, expected):
    assert verb_and_resource(method, path) == expected
