"""The processes of the story: a cluster with engines of one pool, a manager with its index in Redis, an S3 server."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from hack.demo.console import chapter, say, wait_until
from hack.demo.engines import API_PORT, Engine, cores_for, engine_environment, reach_directly, zone_command
from hack.demo.models.model import Model, prepare
from hack.demo.processes import Processes
from hack.demo.samples import ADMIN_VOLUME, CONFIG_VOLUME, SALT_VOLUME
from hack.demo.stack import ENGINE_START_SECONDS, fresh_folder, register, start_kubelet, start_operator
from hack.demo.story.asking import Tenant, tenant_with_key
from hack.demo.tenants import make_keys
from hack.fleet import declared
from hack.fleet.cluster import FleetCluster, fleet_cluster
from hack.fleet.declared import TENANTS
from hack.fleet.servers import Bucket, bucket, redis
from hack.harness.cache_manager import CacheManagerProcess
from hack.harness.killable import KillableServer
from hack.harness.manager_access import ManagerAccess
from hack.ports import free_address
from tenantzone_contract.cache.cache_names import is_instance_of
from tenantzone_contract.keys.admin_token import TOKEN_FILE
from tenantzone_contract.keys.salt import SALT_KEY_FILE
from tenantzone_contract.reports.report import DEFAULT_ADMIN_PORT, REPORT_PATH, EngineReport, parse_report
from tenantzone_contract.zone_config.config import CONFIG_KEY

_LEASE: Final = ("--lease", "3")
_CONTROL_SECONDS: Final = 90.0
_MOUNTED: Final = ((CONFIG_VOLUME, CONFIG_KEY), (SALT_VOLUME, SALT_KEY_FILE), (ADMIN_VOLUME, TOKEN_FILE))
"""The mounted files that an engine needs when it starts."""


@dataclass(slots=True)
class Fleet:
    """The running fleet."""

    cluster: FleetCluster
    engines: list[Engine]
    processes: list[Processes]
    """The processes of each engine."""
    manager: CacheManagerProcess
    redis: KillableServer | None
    """The Redis with the manager's index; None: the index is in SQLite, as there is no Redis here."""
    bucket: Bucket
    model: Model
    folder: Path
    keys: dict[str, str]
    _start: Callable[[int], tuple[Engine, Processes]]
    floor_chunks: int = 0
    """The chunks guaranteed to acme."""
    flood_chunks: int = 0
    """The chunks that burst may store."""
    _object_bytes: int = field(default=0)

    def tenant(self, name: str, engine: int) -> Tenant:
        """A tenant as it asks one of the engines."""
        return tenant_with_key(name, self.keys[name], self.engines[engine], self.model)

    def report(self, engine: int) -> EngineReport:
        """Returns an engine's report."""
        url = f"http://{self.engines[engine].ip}:{DEFAULT_ADMIN_PORT}{REPORT_PATH}"
        token = (_volumes(self.folder, self.engines[engine]) / ADMIN_VOLUME / TOKEN_FILE).read_text()
        answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        return parse_report(answer.content)

    @property
    def object_bytes(self) -> int:
        """The bytes of a chunk in the storage."""
        if not self._object_bytes:
            self._object_bytes = next(each.chunk_bytes for each in self.report(0).tiers if each.tier == "shared")
        return self._object_bytes

    def share(self, acme: int, burst: int) -> None:
        """Guarantee acme ``acme`` chunks, and let burst store ``burst`` chunks."""
        self.floor_chunks, self.flood_chunks = acme, burst
        namespace = self.cluster.place.namespace
        group = declared.group(namespace, acme * self.object_bytes, burst * self.object_bytes)
        self.cluster.show("apply", "-f", "-", stdin=group)
        self.cluster.show("wait", "--for=condition=Ready", "kvstorages,kvcachegroups", "--all", "--timeout=60s")

    def held(self, tenant: str) -> int:
        """Chunks of a tenant in the storage, as the manager counts them."""
        return self._held_bytes(tenant) // self.object_bytes

    def _held_bytes(self, tenant: str) -> int:
        reported = self.manager.ask("ListInstances").get("instances", ())
        return sum(
            size
            for each in reported
            if is_instance_of(each["instance"]["name"], tenant)
            for size in each.get("bytes_by_type", {}).values()
        )

    def show_storages(self) -> None:
        """Show what the cluster says of storages, groups and zones, once it says what the manager counts."""
        self.cluster.await_storage(ready=True)
        self.cluster.await_held(lambda: {tenant: self._held_bytes(tenant) for tenant in TENANTS})
        self.cluster.show("get", "kvstorages,kvcachegroups,tenantzones", "--output=wide")

    def written(self, tenant: str) -> int:
        """Returns the chunks of a tenant whose writing is complete, by the manager's events."""
        events = map(json.loads, self.manager.events.read_text().splitlines())
        return sum(
            len(event.get("keys", ()))
            for event in events
            if event["event"] == "finish_write_cache" and is_instance_of(event.get("instance", ""), tenant)
        )

    def problem(self, engine: int) -> str:
        """Returns what keeps an engine from using the storage; empty: nothing."""
        return next(each.problem for each in self.report(engine).tiers if each.tier == "shared")

    def storage_problem(self) -> str:
        """Returns the manager's problem with the storage; empty: it can be used."""
        (reported,) = self.manager.ask("ListStorages")["storages"]
        return "" if reported["available"] else f"the manager says: {reported['problem']}"

    def grow(self) -> None:
        """Start one more engine, and wait until it serves."""
        engine, processes = self._start(len(self.engines))
        self.engines.append(engine)
        self.processes.append(processes)
        await_health(self)

    def end(self, engine: int) -> None:
        """End an engine, and its pod with it."""
        self.processes[engine].__exit__(None, None, None)
        self.cluster.cluster.kubectl("delete", "pod", _pod(self.engines[engine]), "--grace-period=0", "--force")


@contextmanager
def running(model: Model, folder: Path) -> Iterator[Fleet]:
    """Start all of it, and end it with the block.

    Args:
        model: what the engines serve.
        folder: of this run; what an earlier one left there is removed.

    Raises:
        AlreadyRunningError: another run uses the folder.
        ProcessDiedError: one of the processes ended.
        TimeoutError: an engine did not come up.
    """
    prepare(model)
    with ExitStack() as stack:
        lock = stack.enter_context(fresh_folder(folder))
        cluster = stack.enter_context(fleet_cluster(folder))
        chapter("The KV-cache manager")
        objects = stack.enter_context(bucket(folder / "s3"))
        index = stack.enter_context(redis(folder / "redis"))
        manager = _manager(folder, cluster, objects, index.url if index is not None else None)
        stack.callback(manager.kill)
        kept = "Redis" if index else "SQLite"
        say(f"It listens on {manager.url}, its index is in {kept}, and blocks go to {objects.endpoint}.")
        controllers = stack.enter_context(Processes(folder / "log", lock))
        manager_flags = ("--manager-url", manager.url, "--manager-token-file", str(folder / "access" / "token"))
        start_operator(controllers, cluster.place, *manager_flags)
        chapter("The pool, its zones, and the storage")
        objects_declared = [declared.pool_and_zones(cluster.place.namespace), declared.storage(objects.options)]
        cluster.show("apply", "-f", "-", stdin="---\n".join(objects_declared))
        keys = make_keys(folder / "keys", TENANTS)

        def start(number: int) -> tuple[Engine, Processes]:
            processes = stack.enter_context(Processes(folder / "log", lock))
            return _start(processes, number, model, folder, cluster, manager, objects), processes

        started = [start(number) for number in range(2)]
        engines, processes = [engine for engine, _ in started], [each for _, each in started]
        say(f"Two engines are starting, on {engines[0].ip} and {engines[1].ip}; their logs are in {folder / 'log'}.")
        fleet = Fleet(cluster, engines, processes, manager, index, objects, model, folder, keys, start)
        await_health(fleet)
        cluster.show("wait", "--for=condition=Ready", "tenantzones", "--all", "--timeout=60s")
        try:
            yield fleet
        except Exception:
            for each in (*fleet.processes, controllers):
                each.check()
            raise


def _manager(folder: Path, cluster: FleetCluster, objects: Bucket, index: str | None) -> CacheManagerProcess:
    access = ManagerAccess(cluster.cluster, folder / "access")
    environment = objects.environment
    manager = CacheManagerProcess(folder / "manager", {}, index, _LEASE, environment=environment, access=access)
    manager.start()
    return manager


def _pod(engine: Engine) -> str:
    return engine.name.replace(" ", "-").lower()


def _volumes(folder: Path, engine: Engine) -> Path:
    """Returns the folder where the substitute for kubelet has the volumes of an engine's pod."""
    return folder / "volumes" / _pod(engine)


def _start(
    processes: Processes,
    number: int,
    model: Model,
    folder: Path,
    cluster: FleetCluster,
    manager: CacheManagerProcess,
    objects: Bucket,
) -> Engine:
    engine = Engine(f"engine {chr(ord('A') + number)}", free_address(API_PORT, DEFAULT_ADMIN_PORT))
    reach_directly(engine)
    name, volumes = _pod(engine), _volumes(folder, engine)
    register(cluster.cluster, declared.pod(name))
    start_kubelet(processes, cluster.place, name, volumes, engine)
    # Like kubelet: a container starts when its volumes exist.
    wait_until(
        lambda: all((volumes / volume / file).exists() for volume, file in _MOUNTED),
        lambda: f"the volumes of {name}",
        timeout=_CONTROL_SECONDS,
    )
    token = volumes / "manager-token"
    token.write_text(cluster.engine_token())
    command = zone_command(engine, model, keys=folder / "keys", volumes=volumes, admin_port=DEFAULT_ADMIN_PORT)
    command += ["--cpu-tier", f"{declared.CPU_TIER}B", "--manager-url", manager.url]
    # Engines, servers and the S3 server's Python share two cores.
    command += ["--manager-budget", "1"]
    command += ["--manager-token-file", str(token)]
    environment = engine_environment(cores_for(number, 2), POD_NAME=name, **objects.environment)
    processes.start(name, command, environment)
    return engine


def await_health(fleet: Fleet) -> None:
    """Wait until all engines serve."""

    def awaited() -> list[str]:
        for each in fleet.processes:
            each.check()
        return [engine.name for engine in fleet.engines if not _is_healthy(engine)]

    say("Engines take two to three minutes to start on two cores.")
    wait_until(lambda: not awaited(), lambda: " and ".join(awaited()), timeout=ENGINE_START_SECONDS)


def _is_healthy(engine: Engine) -> bool:
    try:
        return httpx.get(engine.health_url, timeout=5).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
