"""How often engines are asked: equally often, unless they do not answer, or send what can't be believed."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec import structs

from tenantzone_contract.reports.report import dump_report
from tenantzone_operator.engines import watch as engines
from tenantzone_operator.engines.watch import EngineWatch
from tests.operator.admin_server import MAX_BYTES, Engine, sent
from tests.operator.objects import pod, report


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


@pytest.mark.parametrize(
    ("body", "is_chunked"), [pytest.param(b"x", False, id="no report"), pytest.param(sent(), True, id="in chunks")]
)
async def test_an_engine_that_sends_what_can_not_be_believed_is_asked_less_and_less_often(
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
    newer = structs.replace(report("engine-0", 100), published_unix_time=1e9)
    engine.body, engine.delay, now = dump_report(newer), 0.0, now + 30.0
    assert await is_asked()
    (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
    assert seen.error == ""
    assert await is_asked(), "once it answers it is asked as often as all"


async def test_an_engine_that_does_not_answer_in_time_keeps_no_other_waiting(engine: Engine):
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
    # A loop that waits for the slow one asks both equally often.
    assert engine.asked["127.0.0.1"] <= engine.asked["127.0.0.2"] // 2

    engine.delay_of.clear()
    while any(seen.error for seen in await watch.look_at([slow, quick], engine.port, MAX_BYTES)):
        await watch.ask_all()
        await asyncio.sleep(0.01)
    watch.stop()
