"""One pass of the mover over one group, with its allowance and its results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tenantzone_manager.core.moving import Moved, Rung
from tenantzone_manager.core.settings import Instance, InstanceGroup


@dataclass(slots=True)
class Allowance:
    """The number of bytes that may be copied for a group now. While the number is negative, nothing may be copied."""

    bytes: float
    at: float
    """Unix time at which ``bytes`` was last updated."""


class Allowances:
    """The allowances of groups: token buckets whose capacity is the bytes of one second.

    Args:
        clock: returns Unix time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of_group: dict[str, Allowance] = {}

    def of(self, group: str, bytes_per_second: int) -> Allowance:
        """Returns a group's current allowance."""
        now = self._clock()
        known = self._of_group.setdefault(group, Allowance(float(bytes_per_second), now))
        grown = known.bytes + bytes_per_second * max(0.0, now - known.at)
        known.bytes, known.at = min(float(bytes_per_second), grown), now
        return known


@dataclass(slots=True)
class Round:
    """One pass of the mover over a group."""

    group: InstanceGroup
    instances: Sequence[Instance]
    rungs: Sequence[Rung]
    """Available storages of the group by type, highest type first."""
    allowance: Allowance
    done: Moved
    full: set[tuple[str, str]] = field(default_factory=set)
    """Pairs (type, storage) in which no block is cold enough to be moved down. This pass no longer makes room there."""

    @property
    def may_copy(self) -> bool:
        """Whether some of the allowance is left."""
        return self.allowance.bytes > 0
