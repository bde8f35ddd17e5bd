"""Changes of an instance's blocks in the index, by a draft."""

from collections.abc import Callable, Iterable
from typing import Final

from tenantzone_manager.core.draft import Draft, NotLoaded
from tenantzone_manager.core.records import Block
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex

_FURTHER: Final = 4096
"""Blocks that are read beside those that were asked for, at a time."""

Beside = dict[Address, object]
"""Changes of other records that belong to the same commit."""


async def change_blocks(
    index: MetaIndex,
    space: str,
    keys: Iterable[bytes],
    change: Callable[[Draft, Found], Beside | None],
    beside: Iterable[Address] = (),
) -> None:
    """Change blocks and what follows from it for the blocks before them, all together or not at all.

    Args:
        index: has them.
        space: of the instance.
        keys: of the blocks; those before them are read when they are needed.
        change: changes the draft; it may be called several times. It sees all that was read.
        beside: other records, of which it returns the changes.

    Raises:
        OverLimit: an account has no room for what would be used.
        IndexUnavailable: the index does not answer.
    """
    wanted, others = set(keys), tuple(beside)
    blocks: dict[bytes, Block | None] = {}

    def modifier(found: Found) -> dict[Address, object]:
        blocks.clear()
        blocks.update({address.key: block for address, block in found.items() if address.space == space})
        draft = Draft(blocks)
        made = change(draft, found) or {}
        return {Address(space, key): block for key, block in draft.changes.items()} | made

    while True:
        try:
            await index.read_modify_write([*(Address(space, key) for key in wanted), *others], modifier)
            return
        except NotLoaded as needed:
            # Where one is needed that comes before another one, most of the others need theirs, too.
            before = {block.parent for block in blocks.values() if block is not None and block.parent}
            wanted |= await _that_may_go_with(index, space, {needed.key} | before - wanted)


async def _that_may_go_with(index: MetaIndex, space: str, keys: set[bytes]) -> set[bytes]:
    """These blocks, and before each of them those that are there only for what comes after them."""
    known: set[bytes] = set()
    while keys and len(known) < _FURTHER:
        known |= keys
        entries = await index.get(space, list(keys))
        keys = {entry.value.parent for entry in entries if entry is not None and entry.value.is_hollow} - known - {b""}
    return known
