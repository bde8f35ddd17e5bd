"""All processes of the demo, which start in the order that takes the least time, and end together."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx

from hack.controlplane import Cluster, connect_or_start
from hack.demo.console import chapter, say, wait_until
from hack.demo.engines import (
    API_PORT,
    Engine,
    Tiers,
    cores_for,
    engine_environment,
    reach_directly,
    stock_command,
    zone_command,
)
from hack.demo.models.model import Model, prepare
from hack.demo.paths import PYTHON, demo_environment
from hack.demo.processes import Processes
from hack.demo.samples import ADMIN_VOLUME, CONFIG_VOLUME, POD, SAMPLES, Samples, engine_pod, read_samples
from hack.demo.tenants import make_keys
from hack.demo.workspace import Workspace, show, workspace
from hack.ports import free_address, free_ports
from tenantzone_contract.keys.admin_token import TOKEN_FILE

ENGINE_START_SECONDS = 600.0


class AlreadyRunningError(Exception):
    """Another demo runs in this folder."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The running demo."""

    place: Workspace
    samples: Samples
    model: Model
    zone: Engine
    stock: Engine | None
    keys: dict[str, str]
    """API keys in plain text, by tenant."""
    admin_token: str
    """Bearer token for the engine's admin port."""
    console_port: int
    """Port of the operator's console, on localhost."""
    tiers: Tiers | None = None
    """Tiers of the engine with zones; None if it has no tiers."""

    @property
    def cluster(self) -> Cluster:
        return self.place.cluster

    @property
    def admin_url(self) -> str:
        return f"http://{self.zone.ip}:{self.samples.admin_port}"

    def admin(self) -> httpx.Client:
        """Returns a client of the engine's admin port."""
        return httpx.Client(
            base_url=self.admin_url, headers={"Authorization": f"Bearer {self.admin_token}"}, timeout=60
        )


@contextmanager
def running(
    model: Model, folder: Path, *, kubeconfig: str | None, compare: bool, with_tiers: bool = False
) -> Iterator[Stack]:
    """Start all of it, wait until every zone is ready, and end it with the block.

    Args:
        model: what the engines serve.
        folder: of this run: logs, keys, volumes, the control plane's data. What an earlier run left there is removed.
        kubeconfig: names a cluster to use in place of a control plane of our own.
        compare: also start stock vLLM.
        with_tiers: whether the engine with zones has CPU memory and a disk below its blocks.

    Raises:
        AlreadyRunningError: another demo runs in the folder.
        ProcessDiedError: one of the processes ended.
        TimeoutError: an engine did not come up.
    """
    samples = read_samples()
    prepare(model)
    with fresh_folder(folder) as lock, Processes(folder / "log", lock) as engines:
        keys = make_keys(folder / "keys", samples.tenants)
        tiers = Tiers(folder / "disk") if with_tiers else None
        zone, stock = _start_engines(engines, model, samples, folder, tiers, compare=compare)
        with (
            connect_or_start(folder / "control-plane", kubeconfig) as whole_cluster,
            workspace(whole_cluster, folder) as place,
            Processes(folder / "log", lock) as controllers,
        ):
            cluster = place.cluster
            register(cluster, engine_pod(POD, samples.pool, samples.labels))
            (console_port,) = free_ports(1)
            start_operator(controllers, place, "--console-port", str(console_port))
            start_kubelet(controllers, place, POD, folder / "volumes", zone)
            chapter("The zones")
            show(cluster, "apply", "-f", f"{SAMPLES}/")
            _await_health([zone, stock] if stock else [zone], [engines, controllers])
            show(cluster, "wait", "--for=condition=Ready", "tenantzones", "--all", "--timeout=60s")
            _await_salt(cluster)
            token = folder / "volumes" / ADMIN_VOLUME / TOKEN_FILE
            try:
                yield Stack(place, samples, model, zone, stock, keys, token.read_text(), console_port, tiers)
            except Exception:
                # Most likely one of them died; then its log says more than the error that it has caused.
                engines.check()
                controllers.check()
                raise


@contextmanager
def fresh_folder(folder: Path) -> Iterator[int]:
    """An emptied folder, locked until the last process that was started with the descriptor has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise AlreadyRunningError(f"a demo runs in {folder}, or is just ending; wait for it, or end it") from None
    for name in ("log", "keys", "volumes", "control-plane", "access", "manager", "redis", "s3", "disk"):
        shutil.rmtree(folder / name, ignore_errors=True)
    try:
        yield lock
    finally:
        os.close(lock)


def _start_engines(
    engines: Processes, model: Model, samples: Samples, folder: Path, tiers: Tiers | None, *, compare: bool
) -> tuple[Engine, Engine | None]:
    """Start them first: they take longest. The zone engine finds its config when the operator has written it."""
    count = 2 if compare else 1
    zone = Engine("zone engine", free_address(API_PORT, samples.admin_port))
    reach_directly(zone)
    (folder / "volumes" / CONFIG_VOLUME).mkdir(parents=True)
    keys, volumes = folder / "keys", folder / "volumes"
    command = zone_command(zone, model, keys=keys, volumes=volumes, admin_port=samples.admin_port)
    command += tiers.flags if tiers is not None else []
    engines.start("zone-engine", command, engine_environment(cores_for(0, count), POD_NAME=POD))
    if not compare:
        return zone, None
    stock = Engine("stock engine", free_address(API_PORT))
    reach_directly(stock)
    engines.start("stock-engine", stock_command(stock, model), engine_environment(cores_for(1, count)))
    say(f"Two engines are starting side by side, on {zone.ip} and {stock.ip}; their logs are in {folder / 'log'}.")
    return zone, stock


def register(cluster: Cluster, pod: Mapping[str, Any]) -> None:
    """Make an engine known as a pod with the pool's labels."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))


def start_operator(controllers: Processes, place: Workspace, *flags: str) -> None:
    """The operator, with further flags."""
    operator = [
        PYTHON, "-m", "tenantzone_operator",
        "--kubeconfig", str(place.operator_kubeconfig), "--namespace", place.namespace,
        "--leader-elect-namespace", place.operator_namespace, *flags,
    ]  # fmt: skip
    controllers.start("operator", operator, demo_environment())


def start_kubelet(controllers: Processes, place: Workspace, pod: str, volumes: Path, engine: Engine) -> None:
    """Start the substitute for kubelet, for the pod of one engine."""
    kubelet = [
        PYTHON, "-m", "hack.demo.kubelet",
        "--kubeconfig", str(place.cluster.kubeconfig), "--namespace", place.namespace,
        "--pod", pod, "--volumes", str(volumes), "--ip", engine.ip, "--health", engine.health_url,
    ]  # fmt: skip
    controllers.start(f"kubelet-of-{pod}", kubelet, demo_environment())


def _await_health(engines: list[Engine], groups: list[Processes]) -> None:
    def awaited() -> list[str]:
        for group in groups:
            group.check()
        return [engine.name for engine in engines if not _is_healthy(engine)]

    say("Engines take two to three minutes to start on two cores.")
    wait_until(lambda: not awaited(), lambda: " and ".join(awaited()), timeout=ENGINE_START_SECONDS)


def _await_salt(cluster: Cluster) -> None:
    """Wait until the engine has the pool's salt key: blocks cached under its own key are evicted then."""
    condition = "{.items[*].status.conditions[?(@.type=='SaltNotShared')].reason}"

    def reason() -> str:
        return cluster.kubectl("get", "zonepools", f"-o=jsonpath={condition}").stdout

    wait_until(lambda: not reason(), lambda: f"the engine has the pool's salt key, now {reason()}", timeout=60)


def _is_healthy(engine: Engine) -> bool:
    try:
        with urlopen(engine.health_url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
