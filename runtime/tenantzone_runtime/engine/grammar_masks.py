"""Bounds how long one request's grammar may keep a step of the engine.

Before each token of a structured answer the grammar library says which tokens may come: a mask. By a grammar of a few
hundred bytes that takes it seconds, or hours, and the step waits, with everybody in it. What has begun can't be
stopped. So all that is asked of grammars is done on a thread beside the step; what takes too long is left to its
thread, its request ends, and the step goes on without it. While that thread is still at it, its tenant gets no other
grammar.
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
"""Of a processor's time, for one mask, or to take in one step's tokens of an answer."""
TENANT_LIMIT_SECONDS: Final = 1.0
"""For all that is asked of one tenant's grammars in a step: as many answers may be written at once, none of which takes
too long."""
_LOOK_SECONDS: Final = 0.01
"""Between two looks at what a grammar has taken."""
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
"""Grammars, each with its row of masks, whether it applies, and what vLLM says besides."""


class GrammarMasks:
    """Asks the grammars of an engine's structured answers in the place of vLLM's manager, where zones are declared.

    Args:
        manager: vLLM's own.
        limit_seconds: of a processor's time, for one mask.
        tenant_limit_seconds: for all that is asked of one tenant's grammars in a step.
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
        """Who is still at something that was given up, by tenant."""
        self._taken = Taken()
        """Since the last step's masks were begun: for these, and for drafted tokens after them."""
        self._debts = GrammarDebts()
        self._ended: list[tuple[Request, BindingError | None]] = []
        manager.grammar_bitmask = self.make
        manager._fill_bitmasks = self._fill

    def check(self, request: Request, zone: Zone | None) -> None:
        """Check that a request whose answer is to be structured may come.

        Raises:
            BindingError: something that was given up of its tenant's is still being done, or its tenant's grammars have
                taken too much of late.
        """
        if zone is None or request.structured_output_request is None:
            return
        if (why := self._refusal_of(zone.spec.tenant)) is not None:
            raise BindingError("unsupported", zone.spec.tenant, why)

    def take_ended(self) -> list[tuple[Request, BindingError | None]]:
        """The requests that have to end since the last call, and why; None: the engine itself is at fault."""
        ended, self._ended = self._ended, []
        return ended

    def make(self, requests: dict[str, Request], ids: list[str], spec_tokens: dict[str, list[int]]) -> Any:
        """Make the masks of a step, as vLLM's manager does."""
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
        """Put a guarded grammar into the place of a tenant's."""
        grammar, zone = _grammar_of(request), zone_of(request)
        if zone is None or isinstance(grammar, GuardedGrammar | Endless):
            return
        assert request.structured_output_request is not None
        request.structured_output_request.grammar = GuardedGrammar(grammar, request, zone.spec.tenant, self._validate)

    def _without_refused(self, grammars: Sequence[GuardedGrammar]) -> list[GuardedGrammar]:
        """Those whose tenants get grammars now; the others' requests end."""
        refusals = {tenant: self._refusal_of(tenant) for tenant in {grammar.tenant for grammar in grammars}}
        for grammar in grammars:
            if (why := refusals[grammar.tenant]) is not None:
                self._end(grammar, why)
        return [grammar for grammar in grammars if refusals[grammar.tenant] is None]

    def _refusal_of(self, tenant: str) -> str | None:
        """Why a tenant gets no grammars now; None: it does."""
        if self._left and self._is_left(tenant):
            return _STILL_AT_IT
        return _OWES_TOO_MUCH if self._debts.is_too_much(tenant, time.monotonic()) else None

    def _validate(self, grammar: GuardedGrammar, tokens: list[int]) -> list[int]:
        """Which of drafted tokens fit, from the first on."""
        has_taken_all = self._taken.of(grammar.tenant) > self._tenant_limit_seconds
        if has_taken_all or self._refusal_of(grammar.tenant) is not None:
            return []
        future = self._ask([grammar], lambda: grammar.validate_tokens(tokens))
        return [] if future is None else future.result()

    def _ask(self, grammars: Sequence[GuardedGrammar], task: Callable[[], Result]) -> Future[Result] | None:
        """Have something done beside the step.

        Returns:
            It, done; None if it was given up, and the requests for which it was have ended.
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
        """Wait until it is done, or takes somebody too long and nothing is done for anybody else any more."""
        ended: list[GuardedGrammar] = []
        pause = self._limit_seconds
        # Where several threads are at it, the others must have stopped before they are asked again.
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
        """Give up a grammar, and all its tenant's: it keeps one thread, and not as many as it has requests."""
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
        """End a grammar's request, and ask it nothing more."""
        self._ended.append((grammar.request, None if why is None else BindingError("unsupported", grammar.tenant, why)))
        assert grammar.request.structured_output_request is not None
        grammar.request.structured_output_request.grammar = Endless()

    def _leave(self) -> None:
        """Leave the threads to what they are at."""
        assert self._worker is not None
        self._worker.is_left, self._worker = True, None
        # They go on writing into the old one.
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
        # Not the manager: a thread that is left would find the rows there that have taken the place of its own.
        its_rows = SimpleNamespace(_grammar_bitmask=self._manager._grammar_bitmask, _full_mask=self._manager._full_mask)
        for entry in batch:
            grammar, row, *_ = entry
            if isinstance(grammar, GuardedGrammar):
                grammar.catch_up(row)
            StructuredOutputManager._fill_bitmasks(its_rows, (entry,))

    def _look_at(self, masks: Any, grammars: Sequence[GuardedGrammar]) -> None:
        """End those whose answers can't go on; of a mask without any token a model would make what fits nothing."""
        is_empty = np.bitwise_or.reduce(masks, axis=1) == 0
        masks[is_empty] = -1
        for grammar in grammars:
            if grammar.is_rejected:
                self._end(grammar, _LEADS_NOWHERE if grammar.led_nowhere else None)
            elif is_empty[grammar.rows[0]]:
                self._end(grammar, _LEADS_NOWHERE)
            # Of drafted tokens, which may not come.
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
