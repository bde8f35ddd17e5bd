"""Remembers recently used blocks, so that hot blocks are found without reading all records."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from tenantzone_manager import spaces

_MOST: Final = 16_384
"""Maximum number of blocks to remember for a group. The least recently used blocks are dropped first."""


class Used:
    """Collects the keys of changed blocks, including changes by other managers that share the index.

    These keys are only a hint, because a block may change without being used. The records show whether a block is hot.

    Args:
        is_wanted: returns whether to remember blocks of a group.
    """

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self._is_wanted = is_wanted
        self._of_group: dict[str, OrderedDict[tuple[str, bytes], None]] = {}

    def note(self, space: str, keys: Sequence[bytes]) -> None:
        """Remember the keys of changed records in a space."""
        if not space.startswith("blocks/"):
            return
        owner = spaces.owner_of(space)
        if not self._is_wanted(owner.group):
            self._of_group.pop(owner.group, None)
            return
        noted = self._of_group.setdefault(owner.group, OrderedDict())
        for key in keys:
            noted[owner.instance, key] = None
            noted.move_to_end((owner.instance, key))
        while len(noted) > _MOST:
            noted.popitem(last=False)

    def take(self, group: str, count: int) -> list[tuple[str, bytes]]:
        """Remove and return up to ``count`` blocks of a group, as instance and key, most recently used first."""
        noted = self._of_group.get(group)
        return [noted.popitem()[0] for _ in range(min(count, len(noted)))] if noted else []

    def put_back(self, group: str, instance: str, key: bytes) -> None:
        """Add a block again, for a later pass."""
        self._of_group.setdefault(group, OrderedDict())[instance, key] = None
