"""Background tasks end when they are cancelled, whatever arrives at that moment: otherwise the process never ends.

Before Python 3.12, ``wait_for`` swallowed a cancellation between the end of what it waits for and its own.
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
"""Turns of the loop from the event to the cancellation; in three of them it was swallowed."""


async def ends(working: asyncio.Task[None], come: Callable[[], None], turns: int) -> bool:
    """Whether a waiting task ends that is cancelled a few turns after its event."""
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
async def test_polling_of_engines_ends(engine: Engine, turns: int):
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent()
    await watch.look_at([pod()], engine.port, MAX_BYTES)
    # Otherwise it would be woken up for the very first look.
    watch._wake.clear()

    assert await ends(asyncio.create_task(watch.run()), watch.hurry, turns)


@pytest.mark.parametrize("turns", TURNS)
async def test_listing_ends(turns: int):
    resync = Resync(Store(), cast(Api, None), done=lambda: None)
    resync.start()
    (working,) = (task for task in asyncio.all_tasks() if task.get_name() == "resync")

    assert await ends(working, resync.ask, turns)


@pytest.mark.parametrize("turns", TURNS)
async def test_writing_of_events_ends(turns: int):
    class Written:
        async def create_event(self, *_: Any) -> None:
            await asyncio.Event().wait()

    recorder = Recorder(cast(Api, Written()))
    notice = Notice(Notable.OVERCOMMITTED, "Refuse", "Warning", "too much")

    working = asyncio.create_task(recorder.run())
    assert await ends(working, lambda: recorder.record("TenantZone", zone("acme").meta, notice), turns)
