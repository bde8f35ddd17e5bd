"""The target of the attacks: a cluster with pools, two replicas of the operator, and a KV-cache manager."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.operator.attacks.held import Leaderless, Reservations
from bench.operator.attacks.mounted import MountedFleet, held_of
from bench.operator.client import Client
from bench.operator.process import OperatorProcess
from hack.controlplane import ControlPlane
from hack.harness.cache_manager import CacheManagerProcess
from hack.ports import free_ports
from tenantzone_contract.zone_config.config import ConfigError, RuntimeConfig
from tenantzone_contract.zone_config.packing import config_map_data, files_of, pack_config, unpack_config
from tenantzone_operator.kube.names import config_map_name
from tenantzone_operator.kube.rest import RestError

GROUP = "/apis/tenantzone.io/v1alpha1"
SYSTEM = "tenantzone-system"
KEY_PATH = f"/api/v1/namespaces/{SYSTEM}/secrets/tenantzone-operator-key"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/tenantzone-operator"
UNLISTED = "unlisted"
"""Name of a namespace, a pool and a zone for which the operator has no rights."""
_MERGE = "application/merge-patch+json"
_ROOT = Path(__file__).parents[3]
_LOOK_SECONDS = 0.25
_START_SECONDS = 120.0

Check = Callable[[], Awaitable[bool]]
"""Function that returns whether the expected outcome of an attack has occurred."""


class Replicas:
    """Two replicas of the operator; one replica leads.

    Args:
        kubeconfig: the kubeconfig of both operators, which determines their user.
        folder: the folder for their logs.
        flags: additional flags of both operators.
    """

    def __init__(self, kubeconfig: Path, folder: Path, flags: tuple[str, ...]) -> None:
        self.ports: list[list[int]] = []
        """Ports of each operator, for probes, metrics and console."""
        self.processes: list[OperatorProcess] = []
        for name in ("left", "right"):
            metrics, console = free_ports(2)
            ports = ("--metrics-host", "127.0.0.1", "--metrics-port", str(metrics), "--console-port", str(console))
            process = OperatorProcess(kubeconfig, folder / name, None, (*flags, *ports))
            self.processes.append(process)
            self.ports.append([process.port, metrics, console])
        self.leaderless = Leaderless()
        self.peak_mb = 0.0
        self.restarts = 0

    async def watch(self) -> None:
        """Record at regular intervals whether an operator leads, until cancelled."""
        while True:
            is_led = any([await self.leads(process) for process in self.processes])
            self.leaderless.look(is_led, time.monotonic())
            await asyncio.sleep(_LOOK_SECONDS)

    async def leads(self, process: OperatorProcess) -> bool:
        """Returns whether an operator reports to be the leader."""
        try:
            return bool((await asyncio.to_thread(process.health))["leading"])
        except OSError:
            return False

    async def restart(self, process: OperatorProcess) -> None:
        """Replace a process as Kubernetes does: end it by SIGTERM, start a new one, and wait until that is ready.

        Raises:
            TimeoutError: the new process did not become ready.
        """
        self.peak_mb = max(self.peak_mb, process.peak_mb)
        self.restarts += 1
        await asyncio.shield(asyncio.create_task(asyncio.to_thread(_replace, process)))
        await self.ready(process)

    async def ready(self, process: OperatorProcess) -> None:
        """Wait until an operator has listed all objects."""
        async with asyncio.timeout(_START_SECONDS):
            while True:
                try:
                    await asyncio.to_thread(process.health)
                    break
                except OSError:
                    await asyncio.sleep(_LOOK_SECONDS)

    def measure(self) -> float:
        """Returns the peak memory over all processes, in MB."""
        return max(self.peak_mb, *(process.peak_mb for process in self.processes))


def _replace(process: OperatorProcess) -> None:
    process.terminate()
    process.start()


@dataclass(slots=True)
class Site:
    """The cluster and processes to attack, and the state that attacks need."""

    plane: ControlPlane
    client: Client
    port: int
    fleet: MountedFleet
    reservations: Reservations
    replicas: Replicas
    manager: CacheManagerProcess
    pools: dict[str, str]
    """Namespace of each pool."""
    zones: dict[str, str]
    """Pool of each zone."""
    chance: random.Random
    false_key_seconds: float
    """Time for which the operator's Secret has a false key."""
    key: str = ""
    """The operator's true key, as its Secret had it at first."""

    async def get(self, path: str) -> dict[str, Any] | None:
        """Returns an object, or None if it does not exist."""
        try:
            return await self.client.call("GET", path)
        except RestError as error:
            if error.status == 404:
                return None
            raise

    async def create(self, path: str, kind: str, name: str, spec: Any) -> None:
        body = {"apiVersion": "tenantzone.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        await self.client.call("POST", path, body=body)

    async def merge(self, path: str, change: Any) -> dict[str, Any]:
        return await self.client.call("PATCH", path, body=change, content_type=_MERGE)

    async def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        try:
            await self.client.call("DELETE", path)
        except RestError as error:
            if error.status != 404:
                raise

    async def pause(self) -> None:
        """Wait for the interval between two checks."""
        await asyncio.sleep(_LOOK_SECONDS)

    def pool_path(self, pool: str) -> str:
        return f"{GROUP}/namespaces/{self.pools[pool]}/zonepools/{pool}"

    def zone_path(self, zone: str) -> str:
        return f"{GROUP}/namespaces/{self.pools[self.zones[zone]]}/tenantzones/{zone}"

    def config_path(self, pool: str) -> str:
        return f"/api/v1/namespaces/{self.pools[pool]}/configmaps/{config_map_name(pool)}"

    async def config(self, pool: str) -> RuntimeConfig | None:
        """Returns the config in the pool's ConfigMap; None if there is no ConfigMap or it is invalid."""
        found = await self.get(self.config_path(pool))
        try:
            return unpack_config(files_of(found)) if found is not None else None
        except ConfigError:
            return None

    async def write_config(self, pool: str, config: RuntimeConfig) -> None:
        await self.merge(self.config_path(pool), config_map_data(pack_config(config)))

    async def is_config_right(self, pool: str) -> bool:
        """Returns whether the pool's ConfigMap has exactly the reservations that owners were granted."""
        config = await self.config(pool)
        return config is not None and self.reservations.is_granted(pool, held_of(config))

    async def condition(self, path: str, kind: str) -> dict[str, Any]:
        """Returns a condition of an object; empty if the object does not have it."""
        found = await self.get(path) or {}
        conditions: list[dict[str, Any]] = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})


def list_pools(plane: ControlPlane, pools: dict[str, str]) -> None:
    """Restrict the operator's rights to the given pools, as the chart does for its value ``pools``."""
    manifests = yaml.safe_load_all((_ROOT / "manifests/base/rbac.yaml").read_text())
    (role,) = (body for body in manifests if body["kind"] == "ClusterRole")
    role["rules"] = [rule for rule in role["rules"] if not {"pods", "configmaps", "secrets"} & {*rule["resources"]}]
    items = [role]
    for namespace in sorted({*pools.values()}):
        names = [pool for pool, its in pools.items() if its == namespace]
        items += _role(namespace, [config_map_name(pool) for name in names for pool in (name, twin(name))])
    plane.kubectl("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def twin(pool: str) -> str:
    """Returns the name of the second pool that selects a pool's pods."""
    return f"twin-{pool}"


def _role(namespace: str, config_maps: list[str]) -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "tenantzone-operator", "namespace": namespace}
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": config_maps, "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["create"]},
    ]
    subjects = [{"kind": "ServiceAccount", "name": "tenantzone-operator", "namespace": SYSTEM}]
    reference = {"apiGroup": group, "kind": "Role", "name": "tenantzone-operator"}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": subjects,
        },
    ]
