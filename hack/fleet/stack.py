"""What runs in the story: engines of one pool, a KV-cache manager with its index in Redis, and an S3 server."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from hack.demo.asking import Tenant, tenant_with_key
from hack.demo.console import chapter, say, wait_until
from hack.demo.engines import API_PORT, Engine, cores_for, engine_environment, reach_directly, zone_command
from hack.demo.model import Model, prepare
from hack.demo.processes import Processes
from hack.demo.samples import ADMIN_VOLUME, CONFIG_VOLUME, SALT_VOLUME
from hack.demo.stack import ENGINE_START_SECONDS, fresh_folder
from hack.demo.tenants import make_keys
from hack.fleet.servers import Bucket, bucket, redis
from hack.harness.cache_manager import CacheManagerProcess
from hack.harness.killable import KillableServer
from hack.ports import free_address
from tenantzone_contract.admin_token import ACCEPTED_FILE
from tenantzone_contract.cache_names import zone_group
from tenantzone_contract.config import CONFIG_KEY, PoolConfig, ZoneConfig
from tenantzone_contract.config_text import dump_config, make_config
from tenantzone_contract.report import DEFAULT_ADMIN_PORT, REPORT_PATH, EngineReport, parse_report
from tenantzone_contract.salt import SALT_KEY_FILE, new_salt_key

TENANTS: Final = ("acme", "burst")
_POOL: Final = PoolConfig(namespace="ml", name="chat")
_TOKEN: Final = "engines of ml-chat"
_CPU_TIER: Final = "8MiB"
"""As much as the blocks of the tiny model: a flood turns both over."""
_STORAGE: Final = "s3"
_LEASE: Final = ("--lease", "3")


@dataclass(slots=True)
class Fleet:
    """What runs, as the story sees it."""

    engines: list[Engine]
    processes: list[Processes]
    """Of each engine."""
    manager: CacheManagerProcess
    redis: KillableServer | None
    """What the manager keeps its index in; None: in SQLite, as there is no Redis here."""
    bucket: Bucket
    model: Model
    admin_token: str
    keys: dict[str, str]
    _start: Callable[[int], tuple[Engine, Processes]]
    floor_chunks: int = 0
    """That acme's group has."""
    flood_chunks: int = 0
    """That burst's has."""
    _object_bytes: int = field(default=0)

    def tenant(self, name: str, engine: int) -> Tenant:
        """A tenant as it asks one of the engines."""
        return tenant_with_key(name, self.keys[name], self.engines[engine], self.model)

    def report(self, engine: int) -> EngineReport:
        """What an engine says."""
        url = f"http://{self.engines[engine].ip}:{DEFAULT_ADMIN_PORT}{REPORT_PATH}"
        answer = httpx.get(url, headers={"Authorization": f"Bearer {self.admin_token}"}, timeout=60)
        return parse_report(answer.content)

    @property
    def object_bytes(self) -> int:
        """Of a chunk in the storage."""
        if not self._object_bytes:
            self._object_bytes = next(each.chunk_bytes for each in self.report(0).tiers if each.tier == "shared")
        return self._object_bytes

    def share(self, acme: int, burst: int) -> None:
        """Give each tenant a group of its own, of so many chunks."""
        self.floor_chunks, self.flood_chunks = acme, burst
        groups = [
            {
                "name": zone_group(_POOL.namespace, _POOL.name, tenant),
                "storages": [_STORAGE],
                "pools": [f"{_POOL.namespace}/{_POOL.name}"],
                "total": {"limit": chunks * self.object_bytes, "watermark": 0.9},
            }
            for tenant, chunks in (("acme", acme), ("burst", burst))
        ]
        for group in groups:
            self.manager.ask("PutInstanceGroup", group=group)

    def held(self, tenant: str) -> int:
        """Chunks of a tenant in the storage, as the manager counts them."""
        group = self.manager.ask("ListInstanceGroups")["groups"]
        name = zone_group(_POOL.namespace, _POOL.name, tenant)
        used = next(each["total"]["used"] for each in group if each["group"]["name"] == name)
        return int(used) // self.object_bytes

    def written(self, tenant: str) -> int:
        """Chunks of a tenant that were written so far, by the manager's events: what is being written serves nobody."""
        group = zone_group(_POOL.namespace, _POOL.name, tenant)
        events = map(json.loads, self.manager.events.read_text().splitlines())
        return sum(
            len(event.get("keys", ()))
            for event in events
            if event["event"] == "finish_write_cache" and event.get("group") == group
        )

    def problem(self, engine: int) -> str:
        """What keeps an engine from using the storage; empty: nothing."""
        return next(each.problem for each in self.report(engine).tiers if each.tier == "shared")

    def storage_problem(self) -> str:
        """What the manager says of the storage; empty: it can be used."""
        (told,) = self.manager.ask("ListStorages")["storages"]
        return "" if told["available"] else f"the manager says: {told['problem']}"

    def grow(self) -> None:
        """Start one more engine, and wait until it serves."""
        engine, processes = self._start(len(self.engines))
        self.engines.append(engine)
        self.processes.append(processes)
        await_health(self)

    def end(self, engine: int) -> None:
        """End an engine."""
        self.processes[engine].__exit__(None, None, None)


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
        chapter("The KV-cache manager")
        objects = stack.enter_context(bucket(folder / "s3"))
        index = stack.enter_context(redis(folder / "redis"))
        manager = _manager(folder, objects, index.url if index is not None else None)
        stack.callback(manager.kill)
        kept = "Redis" if index else "SQLite"
        say(f"It listens on {manager.url}, its index is in {kept}, and blocks go to {objects.endpoint}.")
        token = secrets.token_urlsafe(32)
        keys = make_keys(folder / "keys", TENANTS)
        _write_volumes(folder, token)

        def start(number: int) -> tuple[Engine, Processes]:
            processes = stack.enter_context(Processes(folder / "log", lock))
            return _start(processes, number, model, folder, manager, objects), processes

        started = [start(number) for number in range(2)]
        engines, processes = [engine for engine, _ in started], [each for _, each in started]
        say(f"Two engines are starting, on {engines[0].ip} and {engines[1].ip}; their logs are in {folder / 'log'}.")
        fleet = Fleet(engines, processes, manager, index, objects, model, token, keys, start)
        await_health(fleet)
        try:
            yield fleet
        except Exception:
            for each in fleet.processes:
                each.check()
            raise


def _manager(folder: Path, objects: Bucket, index: str | None) -> CacheManagerProcess:
    pools = {_TOKEN: f"{_POOL.namespace}/{_POOL.name}"}
    manager = CacheManagerProcess(folder / "manager", pools, index, _LEASE, environment=objects.environment)
    manager.start()
    manager.ask("RegisterStorage", storage={"name": _STORAGE, "type": "S3", "options": objects.options})
    return manager


def _write_volumes(folder: Path, token: str) -> None:
    volumes = folder / "volumes"
    for name in (CONFIG_VOLUME, SALT_VOLUME, ADMIN_VOLUME):
        (volumes / name).mkdir(parents=True)
    (volumes / SALT_VOLUME / SALT_KEY_FILE).write_text(new_salt_key().hex())
    (volumes / ADMIN_VOLUME / ACCEPTED_FILE).write_text(f"{token}\n")
    (folder / "manager" / "token").write_text(_TOKEN)
    zones = tuple(ZoneConfig(name=name, tenant=name, generation=1) for name in TENANTS)
    (volumes / CONFIG_VOLUME / CONFIG_KEY).write_text(dump_config(make_config(1, _POOL, zones)))


def _start(
    processes: Processes, number: int, model: Model, folder: Path, manager: CacheManagerProcess, objects: Bucket
) -> Engine:
    engine = Engine(f"engine {chr(ord('A') + number)}", free_address(API_PORT, DEFAULT_ADMIN_PORT))
    reach_directly(engine)
    volumes = folder / "volumes"
    command = zone_command(engine, model, keys=folder / "keys", volumes=volumes, admin_port=DEFAULT_ADMIN_PORT)
    command += ["--cpu-tier", _CPU_TIER, "--manager-url", manager.url]
    # Engines, servers and the S3 server's Python share two cores.
    command += ["--manager-budget", "1"]
    command += ["--manager-token-file", str(folder / "manager" / "token")]
    name = engine.name.replace(" ", "-")
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
