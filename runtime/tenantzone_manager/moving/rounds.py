"""One pass over one group, with its allowance and its results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tenantzone_manager.core.moving import Moved, Rung
from tenantzone_manager.core.settings import Instance, InstanceGroup


@dataclass(slots=True)
class Allowance:
    """Bytes that may be copied for a group now. A negative number is made up for later."""

    bytes: float
    at: float
    """Unix time up to which it has grown."""


class Allowances:
    """The allowances of groups, which grow with time up to the bytes of one second.

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
    """One pass over a group."""

    group: InstanceGroup
    instances: Sequence[Instance]
    rungs: Sequence[Rung]
    """The group's available storages, the highest type first."""
    allowance: Allowance
    done: Moved
    full: set[tuple[str, str]] = field(default_factory=set)
    """Types and storages without blocks cold enough to leave: less hot blocks need not try them again."""

    @property
    def may_copy(self) -> bool:
        """Whether the allowance is not used up."""
        return self.allowance.bytes > 0
