"""Notes of use, which are collected in memory and written to the records together."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tenantzone_manager.changing import change_blocks
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.writing import use
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.turns import WRITE_AT_ONCE

FLUSH_SECONDS: Final = 1.0
_MOST: Final = 100_000
"""The most notes of use between two flushes; further ones are dropped."""


class Touches:
    """Collects notes of use. A query is noted at the block where it ended, and at no other: see ``core/draft.py``.

    Args:
        index: index with the records.
        on_written: called with what was written, by space.
    """

    def __init__(self, index: MetaIndex, on_written: Callable[[str, Sequence[bytes]], None]) -> None:
        self._index = index
        self._on_written = on_written
        self._noted: dict[str, dict[bytes, tuple[float, int, bool]]] = {}
        self._count = 0

    def note(self, space: str, keys: Sequence[bytes], now: float, *, is_beside: bool = False) -> None:
        """Note that queries ended at these blocks.

        Args:
            space: space of the instance.
            keys: keys of the blocks.
            now: current Unix time.
            is_beside: whether the same queries are noted at other blocks of their prompts, too.
        """
        if self._count + len(keys) > _MOST:
            return
        noted = self._noted.setdefault(space, {})
        for key in keys:
            noted[key] = now, noted.get(key, (now, 0))[1] + 1, is_beside
        self._count += len(keys)

    async def flush(self) -> None:
        """Write the collected notes; those that the index refuses are lost."""
        noted, self._noted, self._count = self._noted, {}, 0
        for space, uses in noted.items():
            keys = list(uses)
            for begin in range(0, len(keys), WRITE_AT_ONCE):
                await self._write(space, keys[begin : begin + WRITE_AT_ONCE], uses)
                # An index in a file never suspends this task, so other tasks would not run.
                await asyncio.sleep(0)

    async def _write(self, space: str, keys: Sequence[bytes], uses: dict[bytes, tuple[float, int, bool]]) -> None:
        def change(draft: Draft, _: Found) -> None:
            for key in keys:
                use(draft, key, *uses[key])

        await change_blocks(self._index, space, keys, change)
        self._on_written(space, keys)
