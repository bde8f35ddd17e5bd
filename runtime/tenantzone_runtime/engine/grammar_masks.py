"""Bounds how long one request's grammar may hold up a step of the engine.

Before each token of a structured answer, the grammar library computes a mask of the allowed tokens. A grammar of a few
hundred bytes can make this take seconds or hours, and the step waits, with all its requests. The computation can't be
stopped. So grammar work runs on a thread outside the step. If it takes too long, the thread is abandoned, its request
ends, and the step continues without it. While the abandoned thread still runs, its tenant gets no other grammar.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tenantzone_runtime.engine.binding import BindingError
from tenantzone_runtime.engine.grammar_debts import GrammarDebts
from tenantzone_runtime.engine.grammar_work import Result, Taken, Work, Worker, is_done
from tenantzone_runtime.engine.guarded_grammar import Endless, GuardedGrammar
from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones.zone import Zone

LIMIT_SECONDS: Final = 0.25
"""Processor seconds for one mask, or for accepting one step's tokens of an answer."""
TENANT_LIMIT_SECONDS: Final = 1.0
"""Processor seconds per step for all grammars of one tenant: it may have many answers at once, each within its
limit."""
_LOOK_SECONDS: Final = 0.01
"""Seconds between two checks of the processor time that a grammar has taken."""
_STILL_AT_IT: Final = (
    "the engine is still at the form of an answer of this tenant's that took it too long; ask without a form, or later"
)
_OWES_TOO_MUCH: Final = (
    "the forms of this tenant's answers have taken the engine too long of late; ask for simpler ones, without a form, "
    "or later"
)
_LEADS_NOWHERE: Final = (
    "by the form that the answer should have no token may come next: it refers to itself without end, nothing can fit "
    "it, or the answer fits it already and is not to end (ignore_eos); ask for another one"
)
NOT_COMPILED: Final = "the engine can't make a grammar of the form that the answer should have; ask for another one"

_Batch = Iterable[tuple[Any, int, bool, *tuple[Any, ...]]]
"""Grammars, each with its row of masks, whether it applies, and vLLM's further arguments."""


class GrammarMasks:
    """Runs the grammars of structured answers in place of vLLM's manager if zones are declared.

    Args:
        manager: vLLM's own manager.
        limit_seconds: processor seconds for one mask.
        tenant_limit_seconds: processor seconds per step for all grammars of one tenant.
    """

    def __init__(
        self,
        manager: StructuredOutputManager,
        limit_seconds: float = LIMIT_SECONDS,
        tenant_limit_seconds: float = TENANT_LIMIT_SECONDS,
    ) -> None:
        self._manager = manager
        self._limit_seconds = limit_seconds
        self._tenant_limit_seconds = tenant_limit_seconds
        self._make = manager.grammar_bitmask
        self._worker: Worker | None = None
        self._left: dict[str, Worker] = {}
        """Workers that still run abandoned work, by tenant."""
        self._taken = Taken()
        """Processor time since the last step's masks were begun: for those masks, and for drafted tokens after them."""
        self._debts = GrammarDebts()
        self._ended: list[tuple[Request, BindingError | None]] = []
        manager.grammar_bitmask = self.make
        manager._fill_bitmasks = self._fill

    def check(self, request: Request, zone: Zone | None) -> None:
        """Check that a request with a structured answer may be added.

        Raises:
            BindingError: abandoned work of its tenant still runs, or its tenant's grammars have taken too much
                processor time lately.
        """
        if zone is None or request.structured_output_request is None:
            return
        if (why := self._refusal_of(zone.spec.tenant)) is not None:
            raise BindingError("unsupported", zone.spec.tenant, why)

    def take_ended(self) -> list[tuple[Request, BindingError | None]]:
        """Returns the requests to end since the last call, with the reason; None if the engine itself is at fault."""
        ended, self._ended = self._ended, []
        return ended

    def make(self, requests: dict[str, Request], ids: list[str], spec_tokens: dict[str, list[int]]) -> Any:
        """Compute the masks of a step, as vLLM's manager does."""
        for name in ids:
            self._guard(requests[name])
        self._debts.add(self._taken.by_tenant(), time.monotonic())
        self._taken = Taken()
        while True:
            guarded = [grammar for name in ids if isinstance(grammar := _grammar_of(requests[name]), GuardedGrammar)]
            grammars = self._without_refused(guarded)
            if not grammars:
                return self._make(requests, ids, spec_tokens)
            future = self._ask(grammars, lambda: self._make(requests, ids, spec_tokens))
            if future is not None:
                masks = future.result()
                self._look_at(masks, grammars)
                return masks

    def _guard(self, request: Request) -> None:
        """Replace a tenant's grammar by a guarded one."""
        grammar, zone = _grammar_of(request), zone_of(request)
        if zone is None or isinstance(grammar, GuardedGrammar | Endless):
            return
        assert request.structured_output_request is not None
        request.structured_output_request.grammar = GuardedGrammar(grammar, request, zone.spec.tenant, self._validate)

    def _without_refused(self, grammars: Sequence[GuardedGrammar]) -> list[GuardedGrammar]:
        """Returns the grammars whose tenants may use grammars now; the other requests end."""
        refusals = {tenant: self._refusal_of(tenant) for tenant in {grammar.tenant for grammar in grammars}}
        for grammar in grammars:
            if (why := refusals[grammar.tenant]) is not None:
                self._end(grammar, why)
        return [grammar for grammar in grammars if refusals[grammar.tenant] is None]

    def _refusal_of(self, tenant: str) -> str | None:
        """Returns why a tenant may use no grammars now, or None if it may."""
        if self._left and self._is_left(tenant):
            return _STILL_AT_IT
        return _OWES_TOO_MUCH if self._debts.is_too_much(tenant, time.monotonic()) else None

    def _validate(self, grammar: GuardedGrammar, tokens: list[int]) -> list[int]:
        """Returns the drafted tokens that fit, up to the first that does not."""
        has_taken_all = self._taken.of(grammar.tenant) > self._tenant_limit_seconds
        if has_taken_all or self._refusal_of(grammar.tenant) is not None:
            return []
        future = self._ask([grammar], lambda: grammar.validate_tokens(tokens))
        return [] if future is None else future.result()

    def _ask(self, grammars: Sequence[GuardedGrammar], task: Callable[[], Result]) -> Future[Result] | None:
        """Run a task outside the step.

        Returns:
            The finished task; None if it was given up and its requests have ended.
        """
        work = Work(self._taken)
        for grammar in grammars:
            grammar.begin(work)
        if self._worker is None:
            self._worker = Worker()
        future = self._worker.submit(task)
        self._await(future, work, grammars)
        if work.is_given_up:
            return None
        for grammar in grammars:
            grammar.work = None
        return future

    def _await(self, future: Future[Any], work: Work, grammars: Sequence[GuardedGrammar]) -> None:
        """Wait until the task is done, or a grammar takes too long and no other grammar is being worked on."""
        ended: list[GuardedGrammar] = []
        pause = self._limit_seconds
        # If several threads work on it, the others must have stopped before they get new work.
        while work.is_done_for_others(ended) if ended else not is_done(future, pause):
            pause = _LOOK_SECONDS
            if ended:
                is_done(future, pause)
            if (slow := work.beyond(self._limit_seconds, self._tenant_limit_seconds, ended)) is not None:
                ended += self._give_up(*slow, work, grammars)
        if ended:
            self._leave()

    def _give_up(
        self, slow: Any, is_slow_itself: bool, work: Work, grammars: Sequence[GuardedGrammar]
    ) -> list[GuardedGrammar]:
        """Give up a grammar and all others of its tenant, which then occupies one thread instead of one per request."""
        assert self._worker is not None
        work.give_up(slow.tenant)
        self._left[slow.tenant] = self._worker
        ended = [grammar for grammar in grammars if grammar.tenant == slow.tenant]
        for grammar in ended:
            if not is_slow_itself:
                self._end(grammar, _too_long_together(self._tenant_limit_seconds))
            else:
                self._end(grammar, _too_long(self._limit_seconds) if grammar is slow else _STILL_AT_IT)
        return ended

    def _end(self, grammar: GuardedGrammar, why: str | None) -> None:
        """End a grammar's request, and stop using the grammar."""
        self._ended.append((grammar.request, None if why is None else BindingError("unsupported", grammar.tenant, why)))
        assert grammar.request.structured_output_request is not None
        grammar.request.structured_output_request.grammar = Endless()

    def _leave(self) -> None:
        """Abandon the threads that still work."""
        assert self._worker is not None
        self._worker.is_left, self._worker = True, None
        # The abandoned threads continue to write into the old masks.
        if self._manager._grammar_bitmask is not None:
            self._manager._grammar_bitmask = self._manager._grammar_bitmask.clone()
        pool = getattr(self._manager, "executor_for_fillmask", None)
        if isinstance(pool, ThreadPoolExecutor):
            pool.shutdown(wait=False, cancel_futures=True)
            self._manager.executor_for_fillmask = ThreadPoolExecutor(pool._max_workers)

    def _is_left(self, tenant: str) -> bool:
        self._left = {left: worker for left, worker in self._left.items() if worker.is_alive()}
        return tenant in self._left

    def _fill(self, batch: _Batch) -> None:
        # Not the manager's masks: an abandoned thread would find the rows there that have replaced its own.
        its_rows = SimpleNamespace(_grammar_bitmask=self._manager._grammar_bitmask, _full_mask=self._manager._full_mask)
        for entry in batch:
            grammar, row, *_ = entry
            if isinstance(grammar, GuardedGrammar):
                grammar.catch_up(row)
            StructuredOutputManager._fill_bitmasks(its_rows, (entry,))

    def _look_at(self, masks: Any, grammars: Sequence[GuardedGrammar]) -> None:
        """End answers that can't continue; with an all-zero mask, a model would generate tokens that do not fit."""
        is_empty = np.bitwise_or.reduce(masks, axis=1) == 0
        masks[is_empty] = -1
        for grammar in grammars:
            if grammar.is_rejected:
                self._end(grammar, _LEADS_NOWHERE if grammar.led_nowhere else None)
            elif is_empty[grammar.rows[0]]:
                self._end(grammar, _LEADS_NOWHERE)
            # This includes drafted tokens, which may still be rejected.
            grammar.led_nowhere = bool(is_empty[grammar.rows].any())


def _too_long(seconds: float) -> str:
    return (
        f"the form that the answer should have takes the engine too long: more than {seconds:g} s for the next token; "
        "ask for a simpler one"
    )


def _too_long_together(seconds: float) -> str:
    return (
        f"the forms that this tenant's answers should have take the engine too long together: more than {seconds:g} s "
        "for the next token of each; ask for simpler ones, or for fewer at once"
    )


def _grammar_of(request: Request) -> Any:
    assert request.structured_output_request is not None
    return request.structured_output_request.grammar
