"""Changes blocks of an instance in the index, together with the parent blocks that the change affects."""

from collections.abc import Callable, Iterable
from typing import Final

from tenantzone_manager.core.draft import Draft, NotLoaded
from tenantzone_manager.core.records import Block
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex

_FURTHER: Final = 4096
"""Maximum number of blocks to read in one search for ancestors. The change is then tried again with these blocks."""

OtherChanges = dict[Address, object]
"""New values of other records, which are written in the same commit as the blocks."""


async def change_blocks(
    index: MetaIndex,
    space: str,
    keys: Iterable[bytes],
    change: Callable[[Draft, Found], OtherChanges | None],
    other_addresses: Iterable[Address] = (),
) -> None:
    """Change blocks and, in the same commit, the parent blocks that the change affects.

    Args:
        index: the index.
        space: space of the instance's blocks.
        keys: keys of the blocks to change. Their parents are read when needed.
        change: receives a draft of the blocks and all records that were read. It changes the draft, and returns the new
            values of other records. It may be called several times.
        other_addresses: addresses of the other records that ``change`` may change.

    Raises:
        OverLimit: an account has no room for the additional bytes.
        IndexUnavailable: the index does not answer.
    """
    wanted, others = set(keys), tuple(other_addresses)
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
            # Read the parents of all blocks at once, because the change will probably need most parents.
            before = {block.parent for block in blocks.values() if block is not None and block.parent}
            wanted |= await _that_may_go_with(index, space, {needed.key} | before - wanted)


async def _that_may_go_with(index: MetaIndex, space: str, keys: set[bytes]) -> set[bytes]:
    """Returns ``keys``, and the keys of their ancestors up to and including the first ancestor with locations.

    Removing a block changes this ancestor, and may make the hollow ancestors (those without locations) removable.
    """
    known: set[bytes] = set()
    while keys and len(known) < _FURTHER:
        known |= keys
        entries = await index.get(space, list(keys))
        keys = {entry.value.parent for entry in entries if entry is not None and entry.value.is_hollow} - known - {b""}
    return known
