"""A plan for the next admission: which waiting request is admitted, and what the admission changes.

An engine asks several times which request is next before it admits one, or none. So the arbiter only plans when it is
asked, and a plan changes nothing until it is committed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tokens.tokens_left import TokensLeft

State = tuple[int, ...]
"""Several numbers. At least one of them changes whenever another request may have become the next one."""


@dataclass(slots=True, eq=False)
class AdmissionPlan(Generic[W]):
    """The next request to admit, and the changes that lead to it."""

    state: State
    """The state for which the plan was made."""
    work: W | None = None
    """The request to admit; None if no request can be admitted."""
    is_committed: bool = False
    _notes: list[Callable[[], None]] = field(default_factory=list)
    """The changes for zones that were considered in vain, in the order in which to make them."""
    _begin: Callable[[], bool] | None = None
    """Callback that makes the changes for the request to admit, and returns whether the request then has its room."""

    def note(self, change: Callable[[], None]) -> None:
        """Add a change to make if the plan is committed."""
        self._notes.append(change)

    def admit(self, work: W, begin: Callable[[], bool]) -> None:
        """Set the request to admit. ``begin`` makes room for it, and returns whether it has that room then."""
        self.work, self._begin = work, begin

    def commit(self) -> bool:
        """Make all changes, unless they were made already; returns whether the request to admit has its room."""
        if not self.is_committed:
            self.commit_notes()
            self.is_committed = self._begin is not None and self._begin()
        return self.is_committed

    def commit_notes(self) -> None:
        """Make the changes for zones that were considered in vain, because no request is admitted after all."""
        notes, self._notes = self._notes, []
        for change in notes:
            change()


@dataclass(slots=True, eq=False)
class Trial:
    """What a plan assumes about the resources of a step, while zones are considered for it."""

    tokens: TokensLeft
    """The tokens of the step that would be left after the changes in the plan."""
    keeps_seats: bool = True
    """Whether free seats would still be kept for zones that are entitled to them, after the changes in the plan."""
    without_seat: list[Zone] = field(default_factory=list)
    """Zones considered in vain because free seats are kept for other zones."""
