"""Changes of an instance's blocks that belong together, with what they mean for the blocks before them."""

from collections.abc import Mapping

from msgspec.structs import replace

from tenantzone_manager.core.heat import at_least_as, with_last_use_of, with_uses_of
from tenantzone_manager.core.records import RECORDS, Block


class NotLoaded(Exception):
    """The change touches a block that was not read with the others; read it, too, and make the change anew."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key.hex())
        self.key = key


class Draft:
    """Blocks as they were read, and as they shall be.

    A block that comes to serve in a storage type, or ceases to, is noted with its parent; one that has gone hands its
    parent what was known of its use. So the first that may be evicted are always the ends of prefixes, and an end
    knows when it was last used without a note for each block on the way.
    """

    def __init__(self, found: Mapping[bytes, Block | None]) -> None:
        self._found = found
        self._changed: dict[bytes, Block | None] = {}

    @property
    def changes(self) -> dict[bytes, Block | None]:
        """What is to be written; None: the record goes."""
        return {key: block for key, block in self._changed.items() if block != self._found[key]}

    def get(self, key: bytes) -> Block | None:
        """The block as it is in this draft.

        Raises:
            NotLoaded: it was not read.
        """
        if key in self._changed:
            return self._changed[key]
        try:
            return self._found[key]
        except KeyError:
            raise NotLoaded(key) from None

    def put(self, key: bytes, block: Block) -> None:
        """Have a block be so. One that is hollow and that nothing hangs on goes."""
        reported: Block | None = block
        while reported is not None:
            block, before = reported, self.get(key)
            after = None if block.is_hollow and not block.children.get(RECORDS) else block
            self._changed[key] = after
            # Its parent may go with it, and the one before that: there may be thousands of them.
            key, reported = block.parent, self._parent_told(block, before, after)

    def _parent_told(self, block: Block, before: Block | None, after: Block | None) -> Block | None:
        """The block before one that has changed, as it shall be; None: it has none, or it stays as it is."""
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
            # Where it is no more, the parent may be the end of a prefix now.
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
