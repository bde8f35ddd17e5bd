"""Which blocks were used of late: where to look for hot ones, without a look at all records."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from tenantzone_manager import spaces

_MOST: Final = 16_384
"""Blocks of a group; of more, those go first that were used least lately."""


class Used:
    """Hears of each change of blocks that was written down, also by other managers over the same index.

    It is a hint: what is hot, the records say. Not all that was changed was used.

    Args:
        is_wanted: whether anybody looks at a group's blocks.
    """

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self._is_wanted = is_wanted
        self._of_group: dict[str, OrderedDict[tuple[str, bytes], None]] = {}

    def note(self, space: str, keys: Sequence[bytes]) -> None:
        """Records of a space were changed."""
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
        """Up to so many of a group's, as instance and key, those first that were used last; they are noted no more."""
        noted = self._of_group.get(group)
        return [noted.popitem()[0] for _ in range(min(count, len(noted)))] if noted else []

    def put_back(self, group: str, instance: str, key: bytes) -> None:
        """Have a block be looked at again."""
        self._of_group.setdefault(group, OrderedDict())[instance, key] = None
