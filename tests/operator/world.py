"""One namespace with a pool, zones and engines, and what a test does with them."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hack.controlplane import Cluster
from hack.ports import free_ports
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.packing import files_of, unpack_config
from tests.operator.fleet import SimulatedEngine, pod_manifest, pod_status
from tests.operator.kube import Kube, eventually

POOL = "demo"
_GROUP = "/apis/tenantzone.io/v1alpha1"
_hosts = itertools.count(2)


class World:
    def __init__(self, cluster: Cluster, kube: Kube, namespace: str) -> None:
        self.cluster = cluster
        self.kube = kube
        self.namespace = namespace
        self.engines: list[SimulatedEngine] = []
        (self._port,) = free_ports(1)

    def kubectl(self, *args: str, **options: Any) -> Any:
        return self.cluster.kubectl("--namespace", self.namespace, *args, **options)

    # Actions of a user

    def add_pool(self, name: str = POOL, **spec: Any) -> None:
        selector = {"matchLabels": {"pool": name}}
        body = {"kind": "ZonePool", "spec": {"selector": selector, "adminPort": self._port} | spec}
        self._create("zonepools", name, body)

    def add_zone(self, name: str, **spec: Any) -> None:
        self._create("tenantzones", name, {"kind": "TenantZone", "spec": {"pool": POOL} | spec})

    def change_zone(self, name: str, **spec: Any) -> int:
        """Changes a zone. Returns the new generation."""
        return self.kube.merge(self._path("tenantzones", name), {"spec": spec})["metadata"]["generation"]

    def delete_zone(self, name: str) -> None:
        self.kube.call("DELETE", self._path("tenantzones", name))

    def delete_everything(self) -> None:
        """For hundreds of objects: one by one they take a tenth of a second each."""
        ours, core = f"{_GROUP}/namespaces/{self.namespace}", f"/api/v1/namespaces/{self.namespace}"
        for path in (f"{ours}/tenantzones", f"{ours}/zonepools", f"{core}/pods", f"{core}/configmaps"):
            self.kube.call("DELETE", f"{path}?gracePeriodSeconds=0")

    # Actions of the cluster

    def add_engine(
        self, name: str = "engine-0", *, pool: str = POOL, blocks: int = 100, **options: Any
    ) -> SimulatedEngine:
        """Adds an engine, with further options for it."""
        ip = f"127.0.0.{next(_hosts)}"
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.kube.call("POST", pods, pod_manifest(name, {"pool": pool}))
        where = {"pool": pool, "ip": ip, "port": self._port}
        engine = SimulatedEngine(self.kube, self.namespace, name, blocks=blocks, **where, **options)
        engine.start()
        self.engines.append(engine)
        self.set_ready(engine, True)
        return engine

    def set_ready(self, engine: SimulatedEngine, ready: bool) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{engine.name}/status"
        self.kube.merge(path, pod_status(engine.ip, ready=ready))

    # Views for a test

    def zone(self, name: str) -> dict[str, Any]:
        found = self.kube.get(self._path("tenantzones", name))
        assert found is not None
        return found

    def pool(self, name: str = POOL) -> dict[str, Any]:
        found = self.kube.get(self._path("zonepools", name))
        assert found is not None
        return found

    def config(self, pool: str = POOL) -> RuntimeConfig | None:
        found = self.kube.get(f"/api/v1/namespaces/{self.namespace}/configmaps/tenantzone-{pool}")
        return unpack_config(files_of(found)) if found is not None else None

    def entries(self) -> dict[str, int | str]:
        """Reservations in the config, by zone."""
        config = self.config()
        return {entry.name: entry.reserved for entry in config.zones} if config is not None else {}

    def events(self, reason: str = "") -> list[dict[str, Any]]:
        """Events with this reason, or all."""
        found = self.kube.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        assert found is not None
        return [event for event in found["items"] if reason in ("", event["reason"])]

    @property
    def config_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/tenantzone-{POOL}"

    def zone_path(self, name: str) -> str:
        return self._path("tenantzones", name)

    @property
    def pool_path(self) -> str:
        return self._path("zonepools", POOL)

    def await_condition(self, zone: str, kind: str, status: str, reason: str = "") -> dict[str, Any]:
        """The condition, once it is about the zone's current generation and has this status."""

        def look() -> dict[str, Any] | None:
            found = self.zone(zone)
            present = conditions(found).get(kind)
            assert present is not None, f"{zone} has no condition {kind}"
            is_it = (
                present["observedGeneration"] == found["metadata"]["generation"]
                and present["status"] == status
                and reason in ("", present["reason"])
            )
            assert is_it, json.dumps(present)
            return present

        return eventually(look)

    def await_ready_with_engine(self, *, blocks: int) -> SimulatedEngine:
        """Adds a first engine. Returns it once it enforces all zones."""
        engine = self.add_engine(blocks=blocks)
        self.await_ready(*self.entries())
        return engine

    def await_ready(self, *zones: str) -> None:
        for zone in zones:
            self.await_condition(zone, "Ready", "True")

    def await_polls(self, count: int) -> None:
        """Waits until each engine was polled that many times more."""
        goals = [(engine, engine.polls + count) for engine in self.engines]
        eventually(lambda: all(engine.polls >= goal for engine, goal in goals))

    @contextmanager
    def refusing(self, error: str) -> Iterator[SimulatedEngine]:
        """A pool whose engine refuses the newest config of the zone acme; in the end it accepts the config."""
        self.add_pool()
        self.add_zone("acme", reserved="10%")
        engine = self.add_engine()
        self.await_ready("acme")
        engine.refusal = error
        self.change_zone("acme", reserved="20%")
        yield engine
        engine.refusal = ""
        engine.sync()
        self.await_ready("acme")

    def _create(self, plural: str, name: str, body: dict[str, Any]) -> None:
        whole = {"apiVersion": "tenantzone.io/v1alpha1", "metadata": {"name": name}} | body
        self.kube.call("POST", f"{_GROUP}/namespaces/{self.namespace}/{plural}", whole)

    def _path(self, plural: str, name: str) -> str:
        return f"{_GROUP}/namespaces/{self.namespace}/{plural}/{name}"


def conditions(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in body.get("status", {}).get("conditions", [])}


@contextmanager
def world_in(cluster: Cluster, kube: Kube, namespace: str) -> Iterator[World]:
    world = World(cluster, kube, namespace)
    try:
        yield world
    finally:
        for engine in world.engines:
            engine.stop()
