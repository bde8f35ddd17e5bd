"""Engines that answer, lie, hang or are gone; over real HTTP."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from aiohttp import web

from hack.controlplane.server import free_ports
from tenantzone_contract.report import EngineReport, ZoneReport
from tenantzone_operator.engines import watch as engines
from tenantzone_operator.engines.reports import max_report_bytes
from tenantzone_operator.engines.watch import EngineWatch
from tests.operator.objects import pod, registered, report, zone_report

MAX_BYTES = max_report_bytes(100, may_register=False)


class Engine:
    """An admin server that sends what it is told to."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.delay = 0.0
        self.is_chunked = False
        self.port = 0
        self.asked: Counter[str] = Counter()
        """How often, by address."""
        self.body_of: dict[str, bytes] = {}
        """What it sends at some address, ..."""
        self.delay_of: dict[str, float] = {}
        """... and how late."""

    async def answer(self, request: web.Request) -> web.Response:
        address = str(request.url.host)
        self.asked[address] += 1
        await asyncio.sleep(self.delay_of.get(address, self.delay))
        answer = web.Response(body=self.body_of.get(address, self.body), status=self.status)
        if self.is_chunked:
            answer.enable_chunked_encoding()
        return answer


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    app = web.Application()
    app.router.add_get("/report", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    await web.TCPSite(runner, "127.0.0.2", made.port).start()
    yield made
    await runner.cleanup()


def sent(name: str = "engine-0", blocks: int = 100, *zones: ZoneReport) -> bytes:
    return report(name, blocks, zones=zones).model_dump_json(by_alias=True).encode()


async def test_a_new_engine_is_asked_at_once(engine: Engine):
    engine.body = sent(blocks=77)

    (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, MAX_BYTES)

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
async def test_what_is_not_believed_is_told_to_the_log_alone(
    engine: Engine,
    caplog: pytest.LogCaptureFixture,
    body: bytes,
    status: int,
    error: str,
):
    engine.body, engine.status = body, status

    with caplog.at_level("INFO"):
        (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, MAX_BYTES)

    assert seen.report is None
    assert seen.error == no_report(engine.port)
    assert error in caplog.text


async def test_what_nobody_expected_of_an_engine_is_that_engines_trouble(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    engine.body = sent()

    async def fail(report: EngineReport) -> None:
        raise KeyError("a defect of ours")

    monkeypatch.setattr(engines, "view_aside", fail)
    watch = EngineWatch(changed=lambda: None)
    (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
    monkeypatch.undo()
    watching = asyncio.create_task(watch.run())
    while (await watch.look_at([pod()], engine.port, MAX_BYTES))[0].report is None:
        assert not watching.done()
        await asyncio.sleep(0.01)
    watching.cancel()

    assert seen.error == no_report(engine.port)
    assert "a defect of ours" in caplog.text


def no_report(port: int) -> str:
    return f"no report from its admin port {port} (the operator's log says why)"


@pytest.mark.parametrize("is_there", [True, False], ids=["silent", "refused"])
async def test_who_says_nothing_looks_like_who_is_not_there_and_costs_a_second(
    engine: Engine, caplog: pytest.LogCaptureFixture, is_there: bool
):
    engine.delay = 60.0
    port = engine.port if is_there else free_ports(1)[0]

    began = time.monotonic()
    with caplog.at_level("INFO"):
        (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], port, MAX_BYTES)

    assert seen.error == no_report(port)
    assert time.monotonic() - began >= 0.99 * engines.ANSWER_SECONDS
    assert ("it does not answer in time" if is_there else "is refused") in caplog.text


async def test_the_log_says_each_new_reason_but_not_all_the_time(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    now = 1000.0
    monkeypatch.setattr(engines, "time", SimpleNamespace(monotonic=lambda: now))
    watch = EngineWatch(changed=lambda: None)
    with caplog.at_level("INFO"):
        for round_ in range(10):
            engine.status = 500 + round_
            await watch.look_at([pod()], engine.port, MAX_BYTES)
            await watch.ask_all()
            now += 10.0
        engine.status, engine.body = 200, sent()
        await watch.ask_all()

    said = [record.getMessage() for record in caplog.records if record.name == engines.logger.name]
    assert said == [
        "engine engine-0: /report answers with status 500",
        "engine engine-0: /report answers with status 506",
        "engine engine-0: answers",
    ]


async def test_changes_are_told_and_repetitions_are_not(engine: Engine):
    changes: list[None] = []
    watch = EngineWatch(changed=lambda: changes.append(None))
    engine.body = sent(blocks=1)
    await watch.look_at([pod()], engine.port, MAX_BYTES)

    await watch.ask_all()
    assert changes == []
    engine.body = sent(blocks=2)
    await watch.ask_all()
    assert changes == [None]


async def test_what_no_status_shows_is_no_change(engine: Engine):
    changes: list[None] = []
    watch = EngineWatch(changed=lambda: changes.append(None))
    engine.body = sent("engine-0", 100, zone_report("acme", cached=5, block_seconds=10.0))
    await watch.look_at([pod()], engine.port, MAX_BYTES)

    engine.body = sent("engine-0", 100, registered("stray"), zone_report("acme", cached=5, block_seconds=15.0))
    await watch.ask_all()
    assert changes == []
    engine.body = sent("engine-0", 100, registered("stray"), zone_report("acme", cached=6, block_seconds=20.0))
    await watch.ask_all()
    assert changes == [None]


async def test_engines_are_asked_over_and_over(engine: Engine):
    changed = asyncio.Event()
    watch = EngineWatch(changed=changed.set)
    engine.body = sent(blocks=1)
    await watch.look_at([pod()], engine.port, MAX_BYTES)
    watch.hurry()
    running = asyncio.create_task(watch.run())

    for blocks in (2, 3):
        engine.body = sent(blocks=blocks)
        await asyncio.wait_for(changed.wait(), 10)
        changed.clear()

    running.cancel()


async def test_one_missed_answer_is_forgiven_and_silence_is_not(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent(blocks=64)
    await watch.look_at([pod()], engine.port, MAX_BYTES)

    engine.status = 500
    await watch.ask_all()
    (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
    assert seen.report is not None

    monkeypatch.setattr(engines, "SILENCE_SECONDS", 0.0)
    await watch.ask_all()
    (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
    assert seen.report is None
    assert seen.blocks == 64, "its size is remembered"


async def test_an_engine_that_repeats_itself_hangs(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent()
    await watch.look_at([pod()], engine.port, MAX_BYTES)
    monkeypatch.setattr(engines, "FROZEN_SECONDS", 0.0)

    for _ in range(2):
        await watch.ask_all()
        (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
        assert seen.report is None
        assert "the engine hangs" in seen.error


async def test_a_pod_that_was_replaced_is_a_new_engine(engine: Engine):
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent("engine-0")
    await watch.look_at([pod("engine-0")], engine.port, MAX_BYTES)
    engine.body = sent("engine-1")

    (seen,) = await watch.look_at([pod("engine-1")], engine.port, MAX_BYTES)

    assert seen.pod == "engine-1"
    assert seen.report is not None


async def test_more_than_the_pools_zones_need_is_not_read(engine: Engine):
    engine.body = sent("engine-0", 100, *(zone_report(f"zone-{number}") for number in range(500)))

    (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, MAX_BYTES)
    assert seen.report is not None
    few = max_report_bytes(1, may_register=False)
    (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, few)
    assert seen.error == no_report(engine.port)


@pytest.mark.parametrize(
    ("body", "is_chunked"), [pytest.param(b"x", False, id="no report"), pytest.param(sent(), True, id="in chunks")]
)
async def test_who_sends_what_nobody_believes_is_asked_less_and_less_often(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, body: bytes, is_chunked: bool
):
    now = 1000.0
    monkeypatch.setattr(engines, "time", SimpleNamespace(monotonic=lambda: now))
    watch = EngineWatch(changed=lambda: None)
    engine.body, engine.is_chunked = body, is_chunked
    await watch.look_at([pod()], engine.port, MAX_BYTES)
    asked_at = []
    for _ in range(100):
        now += 1.0
        asked = engine.asked.total()
        await watch.ask_all()
        if engine.asked.total() > asked:
            asked_at.append(now - 1000.0)
    assert asked_at == [1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0]

    engine.body, engine.is_chunked = sent(), False
    now += 30.0
    await watch.ask_all()
    asked = engine.asked.total()
    await watch.ask_all()
    assert engine.asked.total() == asked + 1, "once it is believed it is asked as often as all"


async def test_who_is_late_is_asked_as_ever_until_it_is_unreachable_and_then_less_and_less_often(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    now = 1000.0
    monkeypatch.setattr(engines, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(engines, "ANSWER_SECONDS", 0.1)
    watch = EngineWatch(changed=lambda: None)

    async def is_asked() -> bool:
        asked = engine.asked.total()
        await watch.ask_all()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "asking engine-0"))
        return engine.asked.total() > asked

    engine.body = sent()
    await watch.look_at([pod()], engine.port, MAX_BYTES)
    engine.delay = 60.0
    asked_at = []
    for _ in range(100):
        now += 1.0
        if await is_asked():
            asked_at.append(now - 1000.0)
    assert asked_at == [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 11.0, 19.0, 35.0, 65.0, 95.0]

    monkeypatch.setattr(engines, "ANSWER_SECONDS", 60.0)
    newer = report("engine-0", 100).model_copy(update={"published_unix_time": 1e9})
    engine.body, engine.delay, now = newer.model_dump_json(by_alias=True).encode(), 0.0, now + 30.0
    assert await is_asked()
    (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
    assert seen.error == ""
    assert await is_asked(), "once it answers it is asked as often as all"


async def test_who_does_not_answer_in_time_keeps_nobody_else_waiting(engine: Engine):
    changes: list[None] = []
    watch = EngineWatch(changed=lambda: changes.append(None))
    slow, quick = pod("engine-0", ip="127.0.0.1"), pod("engine-1", ip="127.0.0.2")
    engine.body_of["127.0.0.1"], engine.body_of["127.0.0.2"] = sent("engine-0"), sent("engine-1")
    engine.delay_of["127.0.0.1"] = 60.0
    await watch.look_at([slow, quick], engine.port, MAX_BYTES)

    async def heard(blocks: int) -> bool:
        await watch.ask_all()
        _, seen = await watch.look_at([slow, quick], engine.port, MAX_BYTES)
        return seen.blocks == blocks

    for blocks in range(1, 21):
        engine.body_of["127.0.0.2"] = sent("engine-1", blocks)
        while not await heard(blocks):
            pass
    assert len(changes) >= 20
    # Who waits for the slow one asks both equally often.
    assert engine.asked["127.0.0.1"] <= engine.asked["127.0.0.2"] // 2

    engine.delay_of.clear()
    while any(seen.error for seen in await watch.look_at([slow, quick], engine.port, MAX_BYTES)):
        await watch.ask_all()
        await asyncio.sleep(0.01)
    watch.stop()
