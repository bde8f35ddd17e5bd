"""A draft of changes to an instance's blocks for one commit, including the resulting changes to parent blocks."""

from collections.abc import Mapping

from msgspec.structs import replace

from tenantzone_manager.core.heat import at_least_as, with_last_use_of, with_uses_of
from tenantzone_manager.core.records import RECORDS, Block


class NotLoaded(Exception):
    """The change needs a block that was not read. The caller must read this block, too, and try the change again."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key.hex())
        self.key = key


class Draft:
    """Blocks as they were read from the index, and as the commit will write them.

    A parent counts its live children by storage type, because only a block without live children may be evicted. A
    query is recorded only at the last block that it reads. Therefore, when a block is removed, its hits, heat and time
    of last use are added to its parent, because the parent may now be the last block of a prefix.
    """

    def __init__(self, found: Mapping[bytes, Block | None]) -> None:
        self._found = found
        self._changed: dict[bytes, Block | None] = {}

    @property
    def changes(self) -> dict[bytes, Block | None]:
        """The blocks to write, by key. None means that the record is deleted."""
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
        """Replace a block, or remove it if ``block`` has neither locations nor children."""
        changed: Block | None = block
        while changed is not None:
            block, before = changed, self.get(key)
            after = None if block.is_hollow and not block.children.get(RECORDS) else block
            self._changed[key] = after
            # Loop instead of recursing, because thousands of ancestors may become removable one after another.
            key, changed = block.parent, self._parent_after(block, before, after)

    def _parent_after(self, block: Block, before: Block | None, after: Block | None) -> Block | None:
        """Returns the updated parent of a changed block, or None if no parent exists or it does not change."""
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
            # The parent may now be the last block of a prefix in the storage type from which the block was removed.
            parent = at_least_as(parent, block)
        return parent


def child_steps(before: Block | None, after: Block | None) -> dict[str, int]:
    """Returns how much each count in the parent's ``children`` changes when a block changes."""
    was = before.live_types if before else frozenset()
    now = after.live_types if after else frozenset()
    if was == now and before is not None and after is not None:
        # A shortcut for most changes.
        return {}
    steps = dict.fromkeys(was - now, -1) | dict.fromkeys(now - was, 1)
    if (before is None) != (after is None):
        steps[RECORDS] = 1 if before is None else -1
    return steps


def with_steps(children: Mapping[str, int], steps: Mapping[str, int]) -> dict[str, int]:
    """Returns the counts ``children`` after adding ``steps``, without counts of zero."""
    counts = {where: children.get(where, 0) + steps.get(where, 0) for where in {**children, **steps}}
    return {where: count for where, count in counts.items() if count > 0}
