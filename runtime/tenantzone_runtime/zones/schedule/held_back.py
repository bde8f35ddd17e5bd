"""Running requests that are held back because they lack blocks for their next tokens.

If a request does not get its blocks in a step, the arbiter tries to make room for it before the next step. Sometimes no
other request can be preempted for it, and it keeps its own blocks because released blocks become free soon. Then it is
known before the step that the request can't continue, and the request gets no tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.preemptor import Preemptor


@dataclass(frozen=True, slots=True)
class _Known:
    computed: int
    """Number of the request's computed tokens before the step."""
    fitting: int
    """Number of its prompt tokens for which it most likely has blocks anyway."""


class HeldBack(Generic[W]):
    """The running requests of one engine that lack blocks.

    Args:
        engine: the engine.
        preemptor: computes the blocks that a request may have.
    """

    def __init__(self, engine: Engine[W], preemptor: Preemptor[W]) -> None:
        self._engine = engine
        self._preemptor = preemptor
        self._turned_down: list[W] = []
        """Requests that did not get the blocks of their next tokens in this step."""
        self._known: dict[W, _Known] = {}
        """Requests that were known before the step to lack blocks. The step may not reach them if tokens run out."""
        self.zones: set[Zone] = set()
        """Zones of the requests in ``_known``. Their waiting requests most likely do not begin in this step."""

    def turned_down(self, work: W) -> None:
        """Note that a running request did not get the blocks of its next tokens."""
        self._turned_down.append(work)

    def goes_on(self, work: W) -> None:
        """Note that a request gets its blocks, or was preempted; does nothing if it did not lack blocks."""
        self._known.pop(work, None)

    def collect(self) -> list[W]:
        """Returns the running requests that lacked blocks in the last step and computed nothing in it."""
        computed = self._engine.tokens_computed
        stood = [work for work, before in self._known.items() if computed(work) == before.computed]
        self._known.clear()
        lacking = dict.fromkeys([*stood, *self._turned_down])
        self._turned_down = [work for work in lacking if self._engine.is_running(work)]
        return list(self._turned_down)

    def look_at(self, works: Iterable[W]) -> None:
        """Note which of the requests still lack blocks, after room was made for them as far as possible."""
        self._turned_down.clear()
        self._known = {work: self._look_at(work) for work in works if self._lacks_blocks(work)}
        self.zones = {work.zone for work in self._known}

    def skipped(self) -> list[W]:
        """Returns the requests that are expected to compute nothing in this step."""
        return [work for work, known in self._known.items() if not known.fitting]

    def first_of(self, zone: Zone) -> W | None:
        """Returns one of the zone's running requests that lack blocks to continue in this step, or None."""
        return next((work for work in (*self.skipped(), *self._turned_down) if work.zone is zone), None)

    def fitting(self, work: W) -> int:
        """Returns for how many prompt tokens a running request has blocks and encoder room in this step."""
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
