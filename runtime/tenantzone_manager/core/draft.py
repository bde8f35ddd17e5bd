"""Changes of an instance's blocks that are committed together, with their effects on the preceding blocks."""

from collections.abc import Mapping

from msgspec.structs import replace

from tenantzone_manager.core.heat import at_least_as, with_last_use_of, with_uses_of
from tenantzone_manager.core.records import RECORDS, Block


class NotLoaded(Exception):
    """The change needs a block that was not read; read it, too, and repeat the change."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key.hex())
        self.key = key


class Draft:
    """Blocks as they were read, and as they will be written.

    A parent counts its children that serve in each storage type, so the first blocks that may be evicted are always
    the ends of prefixes. A removed block passes its usage record to its parent, so an end knows when it was last used,
    although a query is noted at its last block only.
    """

    def __init__(self, found: Mapping[bytes, Block | None]) -> None:
        self._found = found
        self._changed: dict[bytes, Block | None] = {}

    @property
    def changes(self) -> dict[bytes, Block | None]:
        """The blocks to write, by key; None: delete the record."""
        return {key: block for key, block in self._changed.items() if block != self._found[key]}

    def get(self, key: bytes) -> Block | None:
        """Returns the block as it is in this draft.

        Raises:
            NotLoaded: the block was not read.
        """
        if key in self._changed:
            return self._changed[key]
        try:
            return self._found[key]
        except KeyError:
            raise NotLoaded(key) from None

    def put(self, key: bytes, block: Block) -> None:
        """Replace a block. A hollow block without children is removed."""
        changed: Block | None = block
        while changed is not None:
            block, before = changed, self.get(key)
            after = None if block.is_hollow and not block.children.get(RECORDS) else block
            self._changed[key] = after
            # Its parent may be removed with it, and the one before that: there may be thousands.
            key, changed = block.parent, self._parent_after(block, before, after)

    def _parent_after(self, block: Block, before: Block | None, after: Block | None) -> Block | None:
        """Returns the parent of a changed block as it becomes; None: there is none, or it stays as it is."""
        steps = child_steps(before, after)
        parent = self.get(block.parent) if steps and block.parent else None
        if parent is None:
            return None
        was = before.live_types if before else frozenset()
        now = after.live_types if after else frozenset()
        parent = replace(parent, children=with_steps(parent.children, steps))
        if was and not now:
            parent = with_last_use_of(parent, block) if block.is_beside else with_uses_of(parent, block)
        elif was - now:
            # In a type that the block has left, the parent may now be the end of a prefix.
            parent = at_least_as(parent, block)
        return parent


def child_steps(before: Block | None, after: Block | None) -> dict[str, int]:
    """Returns by how much a change of a block changes each count of its parent's ``children``."""
    was = before.live_types if before else frozenset()
    now = after.live_types if after else frozenset()
    if was == now and before is not None and after is not None:
        # As most changes are.
        return {}
    steps = dict.fromkeys(was - now, -1) | dict.fromkeys(now - was, 1)
    if (before is None) != (after is None):
        steps[RECORDS] = 1 if before is None else -1
    return steps


def with_steps(children: Mapping[str, int], steps: Mapping[str, int]) -> dict[str, int]:
    """Returns the ``children`` of a block after these steps, without the counts that are zero."""
    counts = {where: children.get(where, 0) + steps.get(where, 0) for where in {**children, **steps}}
    return {where: count for where, count in counts.items() if count > 0}
