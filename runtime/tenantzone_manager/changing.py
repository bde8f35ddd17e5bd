"""Changes of an instance's blocks in the index, made with a draft."""

from collections.abc import Callable, Iterable
from typing import Final

from tenantzone_manager.core.draft import Draft, NotLoaded
from tenantzone_manager.core.records import Block
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex

_FURTHER: Final = 4096
"""Maximum number of additional blocks to read at a time."""

OtherChanges = dict[Address, object]
"""Changes of other records in the same commit."""


async def change_blocks(
    index: MetaIndex,
    space: str,
    keys: Iterable[bytes],
    change: Callable[[Draft, Found], OtherChanges | None],
    other_addresses: Iterable[Address] = (),
) -> None:
    """Change blocks in one commit, including the effects on the blocks before them.

    Args:
        index: the index.
        space: space of the instance.
        keys: keys of the blocks. The blocks before them are read when needed.
        change: changes the draft and returns changes of other records. It receives all records that were read, and may
            be called several times.
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
            # All parents are read together, because most of the other blocks need their parents, too.
            before = {block.parent for block in blocks.values() if block is not None and block.parent}
            wanted |= await _that_may_go_with(index, space, {needed.key} | before - wanted)


async def _that_may_go_with(index: MetaIndex, space: str, keys: set[bytes]) -> set[bytes]:
    """Returns these keys, and the keys of the hollow blocks before them, which may become removable with these blocks.

    For the last hollow block, the key of its parent is included, because the parent would change, too.
    """
    known: set[bytes] = set()
    while keys and len(known) < _FURTHER:
        known |= keys
        entries = await index.get(space, list(keys))
        keys = {entry.value.parent for entry in entries if entry is not None and entry.value.is_hollow} - known - {b""}
    return known
