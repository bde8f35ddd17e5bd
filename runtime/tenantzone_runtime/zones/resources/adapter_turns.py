"""The turns of adapters: for how long each adapter has had its slot, and whether its requests have made progress."""

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic
from weakref import WeakKeyDictionary

from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.engine import Engine, W

TURN_STEPS: Final = 16
"""Minimum number of steps for which an adapter keeps its slot. A shorter turn would cost more than it computes."""


@dataclass(slots=True)
class _Turn:
    """An adapter's turn: the time for which it has its slot."""

    since: float
    """Time at which the adapter got the slot, in seconds of the monotonic clock."""
    step: int
    """Number of the step in which the adapter got the slot."""
    regained_in: int
    """Number of the last step before which a request had recomputed the tokens lost in rotation; `step` if none."""


class AdapterTurns(Generic[W]):
    """The current turns of the adapters of one engine that have a slot.

    Args:
        engine: the engine.
        ledger: provides the current time.
    """

    def __init__(self, engine: Engine[W], ledger: Ledger) -> None:
        self._engine = engine
        self._ledger = ledger
        self._turns: dict[int, _Turn] = {}
        self._to_regain: WeakKeyDictionary[W, int] = WeakKeyDictionary()
        """Requests that gave up a slot by rotation, each with the number of tokens that it must compute again."""

    def begin_step(self, adapters: Collection[int], step: int) -> None:
        """Begin turns of adapters that have a slot and had none before, and end the turns of all others.

        Args:
            adapters: the adapters that have a slot.
            step: number of the coming step.
        """
        self._turns = {adapter: self._turns.get(adapter) or self._new_turn(step) for adapter in adapters}
        if self._to_regain:
            self._note_regained(step)

    def begin(self, adapter: int, step: int) -> None:
        """Begin the turn of an adapter, unless it has begun."""
        if adapter not in self._turns:
            self._turns[adapter] = self._new_turn(step)

    def end(self, adapter: int, rotated: Iterable[W]) -> None:
        """End the turn of an adapter.

        Args:
            adapter: the adapter.
            rotated: requests that are preempted for the rotation of slots. In the adapter's next turn, steps count only
                after these requests have recomputed their tokens.
        """
        for work in rotated:
            self._to_regain[work] = self._engine.tokens_computed(work)
        del self._turns[adapter]

    def began_in(self, adapter: int) -> int:
        """Returns the number of the step in which an adapter's turn began."""
        return self._turns[adapter].step

    def seconds(self, adapter: int) -> float:
        """Returns the seconds for which an adapter has had its slot."""
        return self._ledger.now - self._turns[adapter].since

    def has_made_progress(self, adapter: int, running: Iterable[W], step: int) -> bool:
        """Whether an adapter's requests have computed tokens that are new in this turn, in enough steps.

        Args:
            adapter: the adapter.
            running: its running requests.
            step: number of the coming step.
        """
        if step - self._turns[adapter].regained_in < TURN_STEPS:
            return False
        return not any(work in self._to_regain for work in running)

    def _new_turn(self, step: int) -> _Turn:
        return _Turn(self._ledger.now, step, step)

    def _note_regained(self, step: int) -> None:
        """Note which requests have recomputed the tokens that they lost since their last turn.

        The steps of a turn count only from then on. Otherwise a request whose blocks are not kept cached might compute
        the same tokens in each turn, and never end.
        """
        engine = self._engine
        for work in engine.running:
            adapter = engine.adapter(work)
            if adapter is not None and engine.tokens_computed(work) >= self._to_regain.get(work, sys.maxsize):
                del self._to_regain[work]
                self._turns[adapter].regained_in = step
