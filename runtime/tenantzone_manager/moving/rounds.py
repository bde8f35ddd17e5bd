"""One pass over one group: what it may copy, and what it has done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tenantzone_manager.core.moving import Moved, Rung
from tenantzone_manager.core.settings import Instance, InstanceGroup


@dataclass(slots=True)
class Allowance:
    """Bytes that may be copied for a group now. What was copied beyond them is saved later."""

    bytes: float
    at: float
    """Unix time up to which it has grown."""


class Allowances:
    """Grow with time, up to what may be copied in a second.

    Args:
        clock: Unix time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of_group: dict[str, Allowance] = {}

    def of(self, group: str, bytes_per_second: int) -> Allowance:
        """A group's, as it is now."""
        now = self._clock()
        known = self._of_group.setdefault(group, Allowance(float(bytes_per_second), now))
        grown = known.bytes + bytes_per_second * max(0.0, now - known.at)
        known.bytes, known.at = min(float(bytes_per_second), grown), now
        return known


@dataclass(slots=True)
class Round:
    """A pass over a group."""

    group: InstanceGroup
    instances: Sequence[Instance]
    rungs: Sequence[Rung]
    """Its storages that can be used, the highest type first."""
    allowance: Allowance
    done: Moved
    full: set[tuple[str, str]] = field(default_factory=set)
    """Types, and storages of them, that nothing was cold enough to leave: for what is less hot nothing is, either."""

    @property
    def may_copy(self) -> bool:
        """Whether something is left of the allowance."""
        return self.allowance.bytes > 0
