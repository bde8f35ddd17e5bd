"""A group whose blocks move between two storage types, and what happens meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenantzone_manager.core.moving import Moved
from tenantzone_manager.core.settings import Instance, Moves, Quota
from tenantzone_manager.storages import types
from tests.manager.playing import INSTANCE, SIZE, Playing, files, prompt, read_bytes

FAST = Moves(1000 * SIZE)
BOTH = ("disk", "cold")


class Killed(BaseException):
    """The process is gone: nothing after this is done."""


def know_cold_storages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one more storage type: folders that are called otherwise."""
    monkeypatch.setitem(types.STORAGE_TYPES, "Cold", types.STORAGE_TYPES["FileSystem"])  # type: ignore[arg-type]


def upper(blocks: int, watermark: float = 0.5) -> dict[str, Quota]:
    """The quota of the higher type."""
    return {"FileSystem": Quota(blocks * SIZE, watermark)}


async def move(playing: Playing, *, after: float = 1.0) -> Moved:
    """Let time pass, and the mover make one pass."""
    playing.clock.sleep(after)
    await playing.manager.touches.flush()
    return await playing.manager.move()


async def read(playing: Playing, names: list[bytes], times: int, instance: Instance = INSTANCE) -> None:
    for _ in range(times):
        assert await playing.hits(names, instance) == len(names)


async def where(playing: Playing, names: list[bytes], instance: Instance = INSTANCE) -> list[str]:
    """Returns in which storages each block can be read, best first, after checking what lies in each."""
    manager = playing.manager
    found = []
    # Like a query, but without counting as a use.
    for name, entry in zip(names, await manager.index.get(f"blocks/team/{instance.name}", names), strict=True):
        places = manager.reader._locations(instance, name, entry.value, frozenset()) if entry is not None else []
        assert all(read_bytes(location) == name for location in places)
        found.append(" ".join(location.storage for location in places))
    return found


async def write_below(playing: Playing, names: list[bytes], **terms: Any) -> None:
    """Write a prompt into the lower type only, and then have a group with both."""
    await playing.group(["cold"])
    await playing.write(names)
    await playing.group(BOTH, **{"moves": FAST, **terms})


def on(
    playing: Playing,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    happens: Callable[[], Awaitable[None]],
    *,
    after: bool = False,
) -> None:
    """Have something happen whenever the mover asks a storage for something: before it does that, or after it."""
    storages = playing.manager.storages
    real = getattr(storages, call)

    async def called(*arguments: Any) -> Any:
        if not after:
            await happens()
        result = await real(*arguments)
        if after:
            await happens()
        return result

    monkeypatch.setattr(storages, call, called)


async def moves_down_and_up(playing: Playing, lower: str, below: Callable[[], Awaitable[list[bytes]]]) -> None:
    """A prompt's end goes from a folder to a storage of another type, whole, and comes back when it is read often.

    Args:
        playing: with the storages ``disk`` and ``lower``.
        lower: a storage of the lower type.
        below: what lies there.
    """
    some = prompt("a", 3)
    await playing.group(["disk", lower], types=upper(4), moves=FAST)
    await playing.write(some)
    moved = await playing.manager.move()
    assert (moved.blocks["down"], dict(moved.failed)) == (1, {})
    assert await below() == [some[2].ljust(SIZE, b"\0")]
    await playing.settle()
    assert len(files(playing.root)) == 2

    await playing.group(["disk", lower], moves=FAST)
    for _ in range(3):
        await playing.match(some)
    await playing.manager.touches.flush()
    assert (await playing.manager.move()).blocks["up"] == 1
    assert await playing.hits(some) == 3
    assert len(files(playing.root)) == 3
