"""Anything the manager needs may be taken away and given back: it goes on without help, and logs each change once.

Elsewhere: a Redis that is killed (test_process.py), files of an index that are replaced (test_sqlite_log.py), the file
of events and its folder (test_event_files.py), tokens and certificates (test_server.py, test_tls.py).
"""

import logging
import os
import resource
import secrets
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import boto3
import pytest
import redis
from aiohttp.test_utils import TestServer
from moto.server import ThreadedMotoServer

from hack.harness.redis_server import TIMEOUT_SECONDS, RedisServer
from hack.ports import free_ports
from tenantzone_manager.core.writing import WriteStatus
from tenantzone_manager.index import sqlite, sqlite_log
from tenantzone_manager.index.backend import IndexBackend, IndexUnavailable
from tenantzone_manager.index.meta_index import IndexSettings
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.index.reserve import RESERVE_BYTES
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager, Settings
from tenantzone_manager.server import http
from tenantzone_manager.server.access import Anyone
from tenantzone_manager.server.service import Service
from tenantzone_manager.storages import data_storage_manager
from tenantzone_manager.timing import Timing
from tests.manager.playing import INSTANCE, Playing, backup, eventually, keys, prompt, write_bytes

SHORT = Settings(Timing(lease=0.1, write=0.5, clock_skew=0.0), IndexSettings(max_age_seconds=0.1))


class Thing(ABC):
    """What the manager needs."""

    problem: str
    """Is said of it in the log when it is away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def index(self) -> IndexBackend:
        return SqliteBackend(self.folder / "index.db")

    async def store(self, playing: Playing) -> None:
        """Adds a storage next to the index."""
        await playing.storage("disk")

    @abstractmethod
    def take(self) -> None: ...

    @abstractmethod
    def give(self) -> None: ...

    def end(self) -> None:  # noqa: B027 - most leave nothing behind
        """Leave nothing behind."""


class Memory(Thing):
    """Of the Redis with the index."""

    problem = "has no memory left; raise its maxmemory"
    server: RedisServer

    def index(self) -> IndexBackend:
        return RedisBackend(self.server.url, f"{self.folder}/", TIMEOUT_SECONDS)

    def take(self) -> None:
        with redis.Redis.from_url(self.server.url) as client:
            client.config_set("maxmemory", client.info("memory")["used_memory"] - 100_000)

    def give(self) -> None:
        with redis.Redis.from_url(self.server.url) as client:
            client.config_set("maxmemory", 0)

    end = give


class Files(Thing):
    """Of the embedded index."""

    problem = "the file of the index is missing"

    def take(self) -> None:
        (self.folder / "index.db").rename(self.folder / "elsewhere.db")

    def give(self) -> None:
        (self.folder / "elsewhere.db").rename(self.folder / "index.db")


class Backup(Files):
    """Of the embedded index, which is lost and restored."""

    def take(self) -> None:
        backup(self.folder / "index.db", self.folder / "elsewhere.db")
        for path in self.folder.glob("index.db*"):
            path.unlink()


class Wrong(Thing):
    """The embedded index, in whose place there is a file of something else."""

    problem = "file is not a database"

    def take(self) -> None:
        backup(self.folder / "index.db", self.folder / "elsewhere.db")
        (self.folder / "wrong").write_bytes(b"no database" * 1000)
        (self.folder / "wrong").rename(self.folder / "index.db")

    def give(self) -> None:
        (self.folder / "elsewhere.db").rename(self.folder / "index.db")


class Disk(Thing):
    """Of the embedded index: it is full."""

    problem = "has no room on its disk; free 17 MiB there"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.disk = folder / "small"
        mount(self.disk)

    def index(self) -> IndexBackend:
        return SqliteBackend(self.disk / "index.db")

    def take(self) -> None:
        fill(self.disk / "other")

    def give(self) -> None:
        (self.disk / "other").unlink()

    def end(self) -> None:
        subprocess.run(["umount", "--lazy", self.disk], check=True)


class Folder(Thing):
    """Of a storage: nothing of it is there when it is given back."""

    problem = "there is no folder"

    def take(self) -> None:
        # At once: what is removed file by file may get new files meanwhile.
        (self.folder / "disk").rename(self.folder / "elsewhere")

    def give(self) -> None:
        (self.folder / "disk").mkdir()


class Bucket(Thing):
    """Of a storage, at an S3 server."""

    problem = "storage disk: Could not connect"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)
        # All of moto's servers in a process have the same buckets: a prefix that was used before has an owner.
        self.prefix = secrets.token_hex(8)
        self.server = self._start()
        self.client.create_bucket(Bucket="away")

    @property
    def client(self) -> Any:
        return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1")

    def _start(self) -> ThreadedMotoServer:
        server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        server.start()
        return server

    async def store(self, playing: Playing) -> None:
        options = {"bucket": "away", "prefix": self.prefix, "endpoint": f"http://127.0.0.1:{self.port}"}
        await playing.storage("disk", "S3", options={**options, "region": "us-east-1"})

    def take(self) -> None:
        self.server.stop()

    def give(self) -> None:
        self.server = self._start()

    def end(self) -> None:
        self.server.stop()


def mount(folder: Path) -> None:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("may not mount")


def fill(path: Path) -> None:
    """Take all that the disk has left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


@pytest.fixture(params=[Memory, Files, Backup, Wrong, Disk, Folder, Bucket], ids=lambda kind: kind.__name__.lower())
def thing(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
) -> Iterator[Thing]:
    for module, name in (
        *(("tenantzone_manager.manager", f"{each}_SECONDS") for each in ("REFRESH", "FLUSH", "RECLAIM")),
        (data_storage_manager.__name__, "PROBE_SECONDS"),
        *((module.__name__, "LOOK_SECONDS") for module in (sqlite, sqlite_log)),
    ):
        monkeypatch.setattr(f"{module}.{name}", 0.1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    Memory.server = redis_server
    made: Thing = request.param(tmp_path)
    yield made
    made.end()


@pytest.fixture
async def playing(thing: Thing, tmp_path: Path) -> AsyncIterator[Playing]:
    made = Playing(thing.index(), tmp_path)
    made.manager = CacheManager(thing.index(), SHORT)
    await made.manager.start()
    await thing.store(made)
    await made.group()
    await made.manager.catalog.register_instance(INSTANCE)
    yield made
    await made.stop()


async def can_begin(playing: Playing, names: list[bytes]) -> bool:
    """Whether a new block may be written, and can be."""
    try:
        started = await playing.start_write(names)
    except IndexUnavailable:
        return False
    for location in started.locations.values():
        if location.type == "FileSystem":
            write_bytes(location, names[0])
    return bool(started.locations)


async def test_it_goes_on_when_it_is_given_back(
    thing: Thing, playing: Playing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tenantzone_manager")
    numbers = count()

    async def begins() -> bool:
        return await can_begin(playing, keys(f"new{next(numbers)}"))

    await eventually(begins, True)
    caplog.clear()
    thing.take()

    async def said() -> int:
        return sum(thing.problem in record.getMessage() for record in caplog.records)

    await eventually(said, 1)
    await eventually(begins, False)
    for _ in range(30):
        await begins()
    thing.give()
    await eventually(begins, True)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("tenantzone_manager")]
    assert await said() == 1, lines
    assert len(lines) <= 4, lines


@pytest.mark.parametrize("thing", [Memory, Disk], indirect=True, ids=["memory", "disk"])
async def test_what_gives_room_back_passes_where_there_is_none(thing: Thing, playing: Playing) -> None:
    """Blocks are read, removed, trimmed and expire, and the room is the store's again."""
    instance = await playing.manager.catalog.instance("chat")
    kept, removed, begun = prompt("kept", 20), prompt("removed", 20), keys("begun")
    for each in (kept, removed):
        await playing.write(each)
    await playing.start_write(begun)
    thing.take()
    numbers = count()

    async def begins() -> bool:
        # Another block each time: one that was begun before the manager knew would be another writer's.
        return await can_begin(playing, keys(f"new{next(numbers)}"))

    await eventually(begins, False)
    assert (await playing.start_write(keys("new"))).statuses == [WriteStatus.NO_ROOM]
    manager = playing.manager
    async with (
        TestServer(http.application(manager, Service(manager), Anyone())) as server,
        aiohttp.ClientSession(server.make_url("/")) as session,
    ):

        async def readiness() -> tuple[int, bool]:
            async with session.get("/readyz") as ready:
                return ready.status, thing.problem in await ready.text()

        await eventually(readiness, (200, True))
        assert await playing.hits(kept) == 20
        await manager.remover.remove_cache(instance, removed)
        await manager.remover.trim_cache(instance, "FileSystem")

        async def used() -> int:
            return (await manager.index.account("g/team")).used

        await eventually(used, 0)
        thing.give()
        await eventually(readiness, (200, False))
    await eventually(begins, True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount(tmp_path / "small")
    yield tmp_path / "small"
    subprocess.run(["umount", "--lazy", tmp_path / "small"], check=True)


async def test_a_manager_starts_on_a_full_disk_by_its_reserve(small_disk: Path) -> None:
    backend = SqliteBackend(small_disk / "index.db")
    await backend.start(lambda *_: None)
    assert not await backend.keep_reserve()
    await backend.close()
    assert (small_disk / "index.db-reserve").stat().st_size == RESERVE_BYTES
    fill(small_disk / "other")
    await backend.start(lambda *_: None)
    assert "has no room on its disk" in await backend.keep_reserve()
    (small_disk / "other").unlink()
    assert not await backend.keep_reserve()
    await backend.close()


async def test_a_reserve_that_was_not_made_to_its_end_is_none(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "index.db")
    await backend.start(lambda *_: None)
    reserve = tmp_path / "index.db-reserve"
    reserve.write_bytes(bytes(4096))
    assert not await backend.keep_reserve()
    assert reserve.stat().st_size == RESERVE_BYTES
    await backend.close()


@pytest.mark.parametrize(("policy", "refuses"), [("volatile-lru", True), ("allkeys-lru", False)])
async def test_a_redis_that_evicts_only_keys_with_a_time_to_live_has_no_room_for_others(
    policy: str, refuses: bool, redis_server: RedisServer, tmp_path: Path
) -> None:
    backend = RedisBackend(redis_server.url, f"{tmp_path}/", TIMEOUT_SECONDS)
    await backend.start(lambda *_: None)
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("maxmemory-policy", policy)
        # Nothing is evicted of it.
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.02))
        try:
            assert bool(await backend.keep_reserve()) == refuses
        finally:
            client.config_set("maxmemory", 0)
            client.config_set("maxmemory-policy", "noeviction")
    await backend.close()


@pytest.fixture
def without_room(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A manager that may write no file, as on a full disk; and its HTTP port."""
    http_port, grpc_port = free_ports(2)
    command = (
        *("prlimit", "--fsize=0:unlimited", sys.executable, "-m", "tenantzone_manager", "--anyone"),
        *("--index", str(tmp_path / "index.db")),
        *("--listen", f"127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}"),
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        yield http_port, process
        process.kill()


async def test_a_process_whose_index_does_not_answer_yet_waits_for_it(
    without_room: tuple[int, subprocess.Popen[bytes]],
) -> None:
    port, process = without_room
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def answer(path: str) -> tuple[int, str]:
            try:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientError:
                assert process.poll() is None
                return 0, ""

        async def readiness() -> int:
            return (await answer("/readyz"))[0]

        await eventually(readiness, 503)
        assert "no index: " in (await answer("/readyz"))[1]
        assert (await answer("/healthz"))[0] == 200
        async with session.post("/v1/ListStorages") as reported:
            assert (reported.status, (await reported.json())["error"]["code"]) == (503, "UNAVAILABLE")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await eventually(readiness, 200)
    process.terminate()
    assert process.stderr is not None
    log = process.stderr.read().decode()
    assert log.count("the index can't be opened, retrying") == 1
    assert log.count("the index is open") == 1
