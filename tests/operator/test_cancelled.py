"""What works in the background ends when it is cancelled, whatever comes in that moment: else the process never ends.

Python's own ``wait_for`` swallowed, before 3.12, a cancellation between the end of what it waits for and its own.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tenantzone_operator.engines.watch import EngineWatch
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.store import Store
from tenantzone_operator.pool.reconcile import Resync
from tenantzone_operator.status.notices import Notable, Notice
from tenantzone_operator.writing.events import Recorder
from tests.operator.admin_server import MAX_BYTES, Engine, sent
from tests.operator.objects import pod, zone

TURNS = range(4)
"""Turns of the loop from what comes to the cancellation; in three of them it was swallowed."""


async def ends(working: asyncio.Task[None], come: Callable[[], None], turns: int) -> bool:
    """Whether a task that waits ends, which is cancelled a few turns after what it waits for has come."""
    for _ in range(10):
        await asyncio.sleep(0)
    come()
    for _ in range(turns):
        await asyncio.sleep(0)
    working.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    has_ended = working.done()
    while not working.done():
        working.cancel()
        await asyncio.sleep(0)
    return has_ended


@pytest.mark.parametrize("turns", TURNS)
async def test_whoever_asks_engines(engine: Engine, turns: int):
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent()
    await watch.look_at([pod()], engine.port, MAX_BYTES)
    # Else the first look of all is what it was woken up for.
    watch._wake.clear()

    assert await ends(asyncio.create_task(watch.run()), watch.hurry, turns)


@pytest.mark.parametrize("turns", TURNS)
async def test_whoever_lists(turns: int):
    resync = Resync(Store(), cast(Api, None), done=lambda: None)
    resync.start()
    (working,) = (task for task in asyncio.all_tasks() if task.get_name() == "resync")

    assert await ends(working, resync.ask, turns)


@pytest.mark.parametrize("turns", TURNS)
async def test_whoever_writes_events(turns: int):
    class Written:
        async def create_event(self, *_: Any) -> None:
            await asyncio.Event().wait()

    recorder = Recorder(cast(Api, Written()))
    notice = Notice(Notable.OVERCOMMITTED, "Refuse", "Warning", "too much")

    working = asyncio.create_task(recorder.run())
    assert await ends(working, lambda: recorder.record("TenantZone", zone("acme").meta, notice), turns)
