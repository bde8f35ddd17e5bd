"""Touches: collects uses of blocks in memory, and writes the uses to the records in batches."""

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
"""Maximum number of touches between two flushes. Further touches are dropped."""


class Touches:
    """Collects touches. A query touches only the block at which it ended, as the class ``Draft`` explains.

    Args:
        index: index with the records.
        on_written: called with the space and the keys of touched blocks after they were written.
    """

    def __init__(self, index: MetaIndex, on_written: Callable[[str, Sequence[bytes]], None]) -> None:
        self._index = index
        self._on_written = on_written
        self._noted: dict[str, dict[bytes, tuple[float, int, bool]]] = {}
        self._count = 0

    def note(self, space: str, keys: Sequence[bytes], now: float, *, is_beside: bool = False) -> None:
        """Record that queries ended at these blocks, one query per block.

        Args:
            space: space of the instance.
            keys: keys of the blocks.
            now: current Unix time.
            is_beside: whether the same queries are also recorded at other blocks of their prompts.
        """
        if self._count + len(keys) > _MOST:
            return
        noted = self._noted.setdefault(space, {})
        for key in keys:
            noted[key] = now, noted.get(key, (now, 0))[1] + 1, is_beside
        self._count += len(keys)

    async def flush(self) -> None:
        """Write the collected touches to the records. If the index fails, the touches are lost."""
        noted, self._noted, self._count = self._noted, {}, 0
        for space, uses in noted.items():
            keys = list(uses)
            for begin in range(0, len(keys), WRITE_AT_ONCE):
                await self._write(space, keys[begin : begin + WRITE_AT_ONCE], uses)
                # Let other tasks run, because calls to an index in a file never suspend this task.
                await asyncio.sleep(0)

    async def _write(self, space: str, keys: Sequence[bytes], uses: dict[bytes, tuple[float, int, bool]]) -> None:
        def change(draft: Draft, _: Found) -> None:
            for key in keys:
                use(draft, key, *uses[key])

        await change_blocks(self._index, space, keys, change)
        self._on_written(space, keys)
