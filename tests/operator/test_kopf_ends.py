"""kopf ends, whatever its tasks do with a cancellation."""

import asyncio
from contextlib import suppress

from tenantzone_operator.app import end_stubborn


async def test_a_task_that_outlives_one_cancellation_holds_up_no_other():
    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def end_once() -> None:
        # As kopf does with the tasks that its root tasks leave.
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    stays = asyncio.create_task(asyncio.Event().wait())
    others = asyncio.all_tasks()
    running = asyncio.create_task(end_once())

    async with asyncio.timeout(20):
        await end_stubborn(running, others, patience=0.05)

    running.result()
    assert not stays.done()
    stays.cancel()
