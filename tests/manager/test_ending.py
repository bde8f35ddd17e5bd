"""How what would go on for ever ends."""

import asyncio
from collections.abc import Callable

from tenantzone_manager.ending import end
from tenantzone_manager.index.backend import IndexBackend


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    begun = asyncio.Event()

    async def hard_of_hearing() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def failing() -> None:
        raise ValueError

    tasks = [asyncio.create_task(hard_of_hearing()), asyncio.create_task(failing())]
    await begun.wait()
    await end(tasks)
    assert [task.cancelled() for task in tasks] == [True, False]


async def test_nothing_has_nothing_to_end() -> None:
    await end([])


async def test_what_asks_an_index_all_the_time_ends(store: Callable[[], IndexBackend]) -> None:
    backend = store()
    await backend.start(lambda _space, _keys: None)

    async def ask_always() -> None:
        while True:
            await backend.count("identity")
            await asyncio.sleep(0)

    for turns in range(3, 9):
        task = asyncio.create_task(ask_always())
        for _ in range(turns):
            await asyncio.sleep(0)
        await end([task])
        assert task.cancelled()
    await backend.close()
