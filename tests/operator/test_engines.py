"""Engines that answer, lie, hang or are gone; over real HTTP."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tenantzone_contract.report import ZoneReport
from tenantzone_operator import engines
from tenantzone_operator.engines import EngineWatch, new_http_session
from tests.operator.objects import pod, registered, report, zone_report


class Engine:
    """An admin server that sends what it is told to."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.delay = 0.0
        self.port = 0

    async def answer(self, _: web.Request) -> web.Response:
        await asyncio.sleep(self.delay)
        return web.Response(body=self.body, status=self.status)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    app = web.Application()
    app.router.add_get("/report", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with new_http_session() as session:
        yield session


def sent(name: str = "engine-0", blocks: int = 100, *zones: ZoneReport) -> bytes:
    return report(name, blocks, zones=zones).model_dump_json(by_alias=True).encode()


async def test_a_new_engine_is_asked_at_once(engine: Engine, http: aiohttp.ClientSession):
    engine.body = sent(blocks=77)

    (seen,) = await EngineWatch(http, changed=lambda: None).look_at([pod()], engine.port)

    assert (seen.pod, seen.blocks, seen.error) == ("engine-0", 77, "")
    assert seen.report is not None


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        pytest.param(b"", 200, "not a report", id="nothing"),
        pytest.param(b"<html>", 200, "not a report", id="another server"),
        pytest.param(b'{"version": 99}', 200, "not a report", id="a version of the future"),
        pytest.param(b"[" * 100_000, 200, "not a report", id="brackets without end"),
        pytest.param(b"\xff\xfe", 200, "not a report", id="no text"),
        pytest.param(sent("engine-1"), 200, "another pod answers, engine-1", id="a pod that took over the address"),
        pytest.param(sent(), 404, "status 404", id="an error"),
        pytest.param(sent(), 302, "status 302", id="a redirect"),
        pytest.param(b" " * (17 * 2**20), 200, "too large", id="more than anybody has to say"),
    ],
)
async def test_what_is_not_believed(engine: Engine, http: aiohttp.ClientSession, body: bytes, status: int, error: str):
    engine.body, engine.status = body, status

    (seen,) = await EngineWatch(http, changed=lambda: None).look_at([pod()], engine.port)

    assert seen.report is None
    assert error in seen.error


async def test_an_engine_that_never_answers_costs_a_second(engine: Engine, http: aiohttp.ClientSession):
    engine.delay = 60.0

    (seen,) = await EngineWatch(http, changed=lambda: None).look_at([pod()], engine.port)

    assert seen.error == "no answer within 1 s"


async def test_changes_are_told_and_repetitions_are_not(engine: Engine, http: aiohttp.ClientSession):
    changes: list[None] = []
    watch = EngineWatch(http, changed=lambda: changes.append(None))
    engine.body = sent(blocks=1)
    await watch.look_at([pod()], engine.port)

    await watch.ask_all()
    assert changes == []
    engine.body = sent(blocks=2)
    await watch.ask_all()
    assert changes == [None]


async def test_what_no_status_shows_is_no_change(engine: Engine, http: aiohttp.ClientSession):
    changes: list[None] = []
    watch = EngineWatch(http, changed=lambda: changes.append(None))
    engine.body = sent("engine-0", 100, zone_report("acme", cached=5, block_seconds=10.0))
    await watch.look_at([pod()], engine.port)

    engine.body = sent("engine-0", 100, registered("stray"), zone_report("acme", cached=5, block_seconds=15.0))
    await watch.ask_all()
    assert changes == []
    engine.body = sent("engine-0", 100, registered("stray"), zone_report("acme", cached=6, block_seconds=20.0))
    await watch.ask_all()
    assert changes == [None]


async def test_engines_are_asked_over_and_over(engine: Engine, http: aiohttp.ClientSession):
    changed = asyncio.Event()
    watch = EngineWatch(http, changed=changed.set)
    engine.body = sent(blocks=1)
    await watch.look_at([pod()], engine.port)
    watch.hurry()
    running = asyncio.create_task(watch.run())

    for blocks in (2, 3):
        engine.body = sent(blocks=blocks)
        await asyncio.wait_for(changed.wait(), 10)
        changed.clear()

    running.cancel()


async def test_one_missed_answer_is_forgiven_and_silence_is_not(
    engine: Engine, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    watch = EngineWatch(http, changed=lambda: None)
    engine.body = sent(blocks=64)
    await watch.look_at([pod()], engine.port)

    engine.status = 500
    await watch.ask_all()
    (seen,) = await watch.look_at([pod()], engine.port)
    assert seen.report is not None

    monkeypatch.setattr(engines, "SILENCE_SECONDS", 0.0)
    await watch.ask_all()
    (seen,) = await watch.look_at([pod()], engine.port)
    assert seen.report is None
    assert seen.blocks == 64, "its size is remembered"


async def test_an_engine_that_repeats_itself_hangs(
    engine: Engine, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    watch = EngineWatch(http, changed=lambda: None)
    engine.body = sent()
    await watch.look_at([pod()], engine.port)
    monkeypatch.setattr(engines, "FROZEN_SECONDS", 0.0)

    for _ in range(2):
        await watch.ask_all()
        (seen,) = await watch.look_at([pod()], engine.port)
        assert seen.report is None
        assert "the engine hangs" in seen.error


async def test_a_pod_that_was_replaced_is_a_new_engine(engine: Engine, http: aiohttp.ClientSession):
    watch = EngineWatch(http, changed=lambda: None)
    engine.body = sent("engine-0")
    await watch.look_at([pod("engine-0")], engine.port)
    engine.body = sent("engine-1")

    (seen,) = await watch.look_at([pod("engine-1")], engine.port)

    assert seen.pod == "engine-1"
    assert seen.report is not None
