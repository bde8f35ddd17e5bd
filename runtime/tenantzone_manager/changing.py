"""Changes of an instance's blocks in the index, by a draft."""

from collections.abc import Callable, Iterable

from tenantzone_manager.core.draft import Draft, NotLoaded
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex, MoreNeeded

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

    def modifier(found: Found) -> dict[Address, object]:
        draft = Draft({address.key: block for address, block in found.items() if address.space == space})
        try:
            others = change(draft, found) or {}
        except NotLoaded as needed:
            raise MoreNeeded([Address(space, needed.key)]) from None
        return {Address(space, key): block for key, block in draft.changes.items()} | others

    await index.read_modify_write([*(Address(space, key) for key in keys), *beside], modifier)
