"""The manager as a process: what it knew is there when it was killed, and several lead by turns over a Redis."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis.asyncio as redis
from aiohttp.test_utils import TestServer

from hack.harness.redis_server import TIMEOUT_SECONDS, RedisServer
from hack.ports import free_ports
from tenantzone_manager.__main__ import main
from tenantzone_manager.events.reading import Selection, Tally, select
from tenantzone_manager.index.backend import IndexBackend, IndexUnavailable
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.reads.touches import Touches
from tenantzone_manager.server import http
from tenantzone_manager.server.access import (
    Anyone,
    Caller,
    Reviewed,
    ReviewedTokens,
    Unauthenticated,
    read_service_accounts,
)
from tenantzone_manager.server.service import Service
from tests.manager.asking import Client, over_grpc, over_http
from tests.manager.playing import Playing, eventually, prompt
from tests.odd_s3 import endless_server

KEYS = [b"a", b"b"]


@pytest.fixture
async def starts(tmp_path: Path) -> AsyncIterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    http_port, grpc_port = free_ports(2)
    (tmp_path / "ports").write_text(f"{http_port} {grpc_port}")

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "tenantzone_manager", "--anyone", "--index", str(tmp_path / "index.db"))
        ports = ("--listen", f"127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}")
        events = ("--events", str(tmp_path / "events.jsonl"), "--events-keep", "2", "--events-max-bytes", "100000")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        started.append(subprocess.Popen([*command, *ports, *events, *arguments], env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


async def test_a_manager_that_is_killed_knows_all_that_it_knew(
    starts: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = starts()
    http_port, grpc_port = map(int, (tmp_path / "ports").read_text().split())
    (tmp_path / "disk").mkdir()
    async with over_http(http_port) as ask, over_grpc(grpc_port) as ask_grpc:

        async def answers() -> bool:
            try:
                await ask("ListStorages")
            except (OSError, aiohttp.ClientError):
                assert process.poll() is None
                return False
            return True

        await eventually(answers, True)
        storage = {"name": "disk", "type": "FileSystem", "options": {"root": str(tmp_path / "disk")}}
        await ask("RegisterStorage", storage=storage)
        await ask("PutInstanceGroup", group={"name": "team", "storages": ["disk"]})
        instance = {"name": "chat", "group": "team", "block_size": 16, "specs": [{"name": "all", "size": 100}]}
        await ask("RegisterInstance", instance=instance)
        started = await ask_grpc("StartWriteCache", instance_id="chat", block_keys=KEYS)
        await ask("FinishWriteCache", instance_id="chat", write_id=started["write_id"], block_keys=KEYS)
        file = tmp_path / "events.jsonl"

        async def is_written_down() -> bool:
            return b"finish_write_cache" in file.read_bytes()

        await eventually(is_written_down, True)
        process.kill()
        process.wait()
        with file.open("ab") as cut:
            cut.write(b'{"time":1')
        process = starts()
        await eventually(answers, True)
        found = await ask_grpc("GetCacheLocation", instance_id="chat", block_keys=KEYS)
        assert found["matched_blocks"] == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    tally = Tally()
    events = list(select([file], Selection(block="61" + "0" * 14), tally))
    assert [event.event for event in events] == ["start_write_cache", "finish_write_cache", "get_cache_location"]
    assert {event.caller for event in events} == {"anyone"}
    assert (tally.skipped, tally.lost) == (1, 0)


async def test_a_storage_that_answers_without_end_does_not_keep_a_manager_from_ending(
    starts: Callable[[], subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a")
    process = starts()
    http_port, _ = map(int, (tmp_path / "ports").read_text().split())
    async with over_http(http_port) as ask:
        with endless_server() as (url, is_asked):
            options = {"bucket": "cache", "endpoint": url, "region": "us-east-1"}

            await register(ask, process, {"name": "bucket", "type": "S3", "options": options})
            assert await asyncio.to_thread(is_asked.wait, 60)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0


async def register(ask: Client, process: subprocess.Popen[bytes], storage: dict[str, Any]) -> None:
    async def is_registered() -> bool:
        try:
            await ask("RegisterStorage", storage=storage)
        except aiohttp.ClientConnectorError:
            assert process.poll() is None
            return False
        return True

    await eventually(is_registered, True)


async def test_credentials_that_can_not_be_read_keep_neither_a_manager_nor_other_storages_waiting(
    starts: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "credentials").mkdir()
    os.mkfifo(tmp_path / "credentials" / "hangs")
    process = starts("--credentials", str(tmp_path / "credentials"))
    http_port, _ = map(int, (tmp_path / "ports").read_text().split())
    options = {"bucket": "cache", "endpoint": "http://127.0.0.1:1", "region": "us-east-1", "credentials": "hangs"}
    async with over_http(http_port) as ask:
        await register(ask, process, {"name": "bucket", "type": "S3", "options": options})
        async with asyncio.timeout(60):
            await ask("UnRegisterStorage", name="bucket")
            await ask("RegisterStorage", storage={"name": "bucket", "type": "S3", "options": options})
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60) == 0


@pytest.mark.parametrize("port", [0, 1], ids=["HTTP", "gRPC"])
async def test_a_manager_whose_port_is_in_use_ends_although_a_storage_hangs(
    starts: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a")
    first = starts()
    ports = [int(each) for each in (tmp_path / "ports").read_text().split()]
    with endless_server() as (url, is_asked):
        options = {"bucket": "cache", "endpoint": url, "region": "us-east-1"}
        async with over_http(ports[0]) as ask:
            await register(ask, first, {"name": "bucket", "type": "S3", "options": options})
        assert await asyncio.to_thread(is_asked.wait, 60)
        first.kill()
        first.wait()
        with socket.create_server(("127.0.0.1", ports[port])):
            assert await asyncio.to_thread(starts().wait, 60) == 1


def test_two_processes_do_not_share_a_file(tmp_path: Path) -> None:
    index = tmp_path / "index.db"
    code = (
        "import asyncio, pathlib, sys\n"
        "from tenantzone_manager.index.sqlite import SqliteBackend\n"
        "async def hold():\n"
        "    await SqliteBackend(pathlib.Path(sys.argv[1])).start(lambda *_: None)\n"
        "    print('held', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(hold())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code, index], stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(SystemExit, match="another process has opened the index"):
            main(["--index", str(index), "--anyone", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
        holder.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--index", "http://x", "--anyone"], "must be the path of a file or a URL"),
        (["--index", "x", "--tokens", "/none"], "No such file"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        main(arguments)


async def test_one_of_several_managers_leads(redis_store: Callable[[], IndexBackend], tmp_path: Path) -> None:
    first = await Playing(redis_store(), tmp_path).start()
    second = Playing(redis_store(), tmp_path)
    await second.start(with_catalog=False)
    a, b = first.manager.index.backend, second.manager.index.backend
    assert [await a.lead("a", 60), await b.lead("b", 60), await a.lead("a", 0.05)] == [True, False, True]
    await eventually(lambda: b.lead("b", 60), True)
    assert not await a.lead("a", 60)
    await first.write(prompt("p", 3))
    assert await second.hits(prompt("p", 3)) == 3
    await first.stop()
    await second.stop()


async def test_a_manager_is_ready_again_when_its_index_answers_again_and_not_before(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("FLUSH", "REFRESH", "RECLAIM", "ORPHAN"):
        monkeypatch.setattr(f"tenantzone_manager.manager.{name}_SECONDS", 0.01)
    flush, looks = Touches.flush, []

    async def flush_with_nothing_to_ask(touches: Touches) -> None:
        looks.append(manager.is_ready)
        await flush(touches)

    monkeypatch.setattr(Touches, "flush", flush_with_nothing_to_ask)
    manager = CacheManager(RedisBackend(redis_server.url, f"{tmp_path}/", TIMEOUT_SECONDS))
    await manager.start()

    async def reported() -> tuple[int, bool]:
        async with session.get("/readyz") as ready, session.get("/metrics") as metrics:
            return ready.status, "tenantzone_manager_index_available 1.0" in await metrics.text()

    async def has_looked_again() -> bool:
        return len(looks) > 20

    application = http.application(manager, Service(manager), Anyone())
    async with TestServer(application) as server, aiohttp.ClientSession(server.make_url("/")) as session:
        await eventually(reported, (200, True))
        caplog.set_level(logging.INFO, "tenantzone_manager.manager")
        caplog.clear()
        redis_server.kill()
        try:
            await eventually(reported, (503, False))
            looks.clear()
            await eventually(has_looked_again, True)
            assert not any(looks)
            assert await reported() == (503, False)
        finally:
            redis_server.start()
        await eventually(reported, (200, True))
    await manager.stop()
    assert len([record for record in caplog.records if record.name == "tenantzone_manager.manager"]) == 2


async def test_what_one_manager_registers_another_learns(
    redis_store: Callable[[], IndexBackend], tmp_path: Path
) -> None:
    second = Playing(redis_store(), tmp_path)
    await second.start(with_catalog=False)
    first = await Playing(redis_store(), tmp_path).start()

    async def knows() -> bool:
        await second.manager.refresh()
        return "chat" in second.manager.catalog.instances and "team" in second.manager.catalog.groups

    await eventually(knows, True)
    await first.stop()
    await second.stop()


async def test_tokens_are_reviewed_and_their_service_accounts_are_pools(tmp_path: Path) -> None:
    accounts = {"ml/engine": {"pool": "ml/chat"}, "tz/operator": {"admin": True}}
    (tmp_path / "accounts").write_text(json.dumps(accounts))
    asked: list[str] = []

    async def review(token: str, audience: str) -> Reviewed:
        asked.append(token)
        known = {"t1": Reviewed("ml/engine", "chat-0"), "t2": Reviewed("ml/stranger")}
        return known.get(token, Reviewed()) if audience == "ours" else Reviewed()

    now = [0.0]
    tokens = ReviewedTokens(review, "ours", read_service_accounts(tmp_path / "accounts").get, lambda: now[0])
    engine = Caller("ml/engine", pool="ml/chat", pod="chat-0")
    assert await tokens.authenticate("t1") == engine
    assert await tokens.authenticate("t1") == engine
    assert asked == ["t1"]
    now[0] = 61.0
    await tokens.authenticate("t1")
    assert asked == ["t1", "t1"]
    for token in ("", "t2", "t3", "t3"):
        with pytest.raises(Unauthenticated, match="audience ours"):
            await tokens.authenticate(token)
    assert asked.count("t3") == 1
    now[0] += 6.0
    with pytest.raises(Unauthenticated):
        await tokens.authenticate("t3")
    assert asked.count("t3") == 2, "what it could not be known by may be back"


async def test_a_redis_that_refuses_the_subscription_is_reported(redis_server: RedisServer, tmp_path: Path) -> None:
    """Since version 7, a new user of Redis may use no channel."""
    async with redis.Redis.from_url(redis_server.url) as client:
        await client.acl_setuser("manager", enabled=True, passwords=["+p"], keys=["*"], commands=["+@all"])
        backend = RedisBackend(redis_server.url.replace("//", "//manager:p@"), f"{tmp_path}/", 1.0)
        with pytest.raises(IndexUnavailable, match=r"sends no changes: .*permission"):
            await backend.start(lambda _space, _keys: None)
        await client.acl_deluser("manager")
