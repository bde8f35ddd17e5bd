"""Running requests that lack blocks for their next tokens, and have to wait for them.

A request that does not get its blocks in a step is helped before the next one. If no request can be preempted for it,
and it need not be preempted itself because its blocks are coming, it is known before the step that it can't continue:
it then has no use for tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.preemptor import Preemptor
from tenantzone_runtime.zones.zone import Zone


@dataclass(frozen=True, slots=True)
class _Known:
    computed: int
    """Tokens of the request before the step."""
    fitting: int
    """Tokens of its prompt for which it most likely has blocks anyway."""


class HeldBack(Generic[W]):
    """The running requests of one engine that lack blocks.

    Args:
        engine: whose requests.
        preemptor: computes the blocks that a request may have.
    """

    def __init__(self, engine: Engine[W], preemptor: Preemptor[W]) -> None:
        self._engine = engine
        self._preemptor = preemptor
        self._turned_down: list[W] = []
        """Requests that did not get the blocks of their next tokens in this step, ..."""
        self._known: dict[W, _Known] = {}
        """... and requests known before the step to lack some. They may not be reached, because tokens run out."""
        self.zones: set[Zone] = set()
        """The zones of the known requests: their other waiting requests most likely do not begin in this step."""

    def turned_down(self, work: W) -> None:
        """Note that a running request did not get the blocks of its next tokens."""
        self._turned_down.append(work)

    def goes_on(self, work: W) -> None:
        """Note that a request gets its blocks, or was preempted; does nothing if it lacked none."""
        self._known.pop(work, None)

    def collect(self) -> list[W]:
        """The requests that lacked blocks in the last step and computed nothing in it."""
        computed = self._engine.tokens_computed
        stood = [work for work, before in self._known.items() if computed(work) == before.computed]
        self._known.clear()
        lacking = dict.fromkeys([*stood, *self._turned_down])
        self._turned_down = [work for work in lacking if self._engine.is_running(work)]
        return list(self._turned_down)

    def look_at(self, works: Iterable[W]) -> None:
        """Update which of the requests still lack blocks, after everything possible was done before the step."""
        self._turned_down.clear()
        self._known = {work: self._look_at(work) for work in works if self._lacks_blocks(work)}
        self.zones = {work.zone for work in self._known}

    def skipped(self) -> list[W]:
        """Returns the requests that are expected to compute nothing in this step."""
        return [work for work, known in self._known.items() if not known.fitting]

    def first_of(self, zone: Zone) -> W | None:
        """Returns a request of the zone that lacks blocks to continue in this step; None if there is none."""
        return next((work for work in (*self.skipped(), *self._turned_down) if work.zone is zone), None)

    def fitting(self, work: W) -> int:
        """Tokens of a running request's prompt for which it has blocks in this step, and room in the encoder."""
        if not self._engine.can_go_on(work):
            return 0
        known = self._known.get(work)
        return self._engine.tokens_left(work) if known is None else known.fitting

    def _lacks_blocks(self, work: W) -> bool:
        engine = self._engine
        return engine.is_running(work) and not self._preemptor.may_continue(work, engine.blocks_to_continue(work))

    def _look_at(self, work: W) -> _Known:
        engine, fitting = self._engine, 0
        if engine.is_in_prompt(work):
            fitting = engine.tokens_within(work, self._preemptor.available_in_turn(work))
            if fitting < min(engine.chunk_tokens(work), engine.tokens_left(work)):
                fitting = 0
        return _Known(engine.tokens_computed(work), fitting)
