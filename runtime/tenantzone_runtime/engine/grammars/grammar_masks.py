"""Bounds how long one request's grammar may delay a step of the engine.

Before each token of a structured output, the grammar library computes a mask of the allowed tokens. A grammar of a few
hundred bytes can make this take seconds or hours, while the step waits with all its requests. The computation can't be
stopped, so it runs on another thread. If it takes too long, the request ends with an error, and the step continues
without the request and the thread. Until the abandoned thread ends, requests of its tenant can't use grammars.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.engine.errors import BindingError
from tenantzone_runtime.engine.grammars.grammar_work import Result, Taken, Work, Worker, is_done
from tenantzone_runtime.engine.grammars.guarded_grammar import Endless, GuardedGrammar
from tenantzone_runtime.zones.model.zone import Zone

_USUAL_SECONDS: Final = 0.05
"""CPU time in seconds that a tenant's grammars may take per step without adding to the tenant's debt."""
_USUAL_OF_EACH_SECONDS: Final = 0.002
"""CPU time in seconds that each structured output may take per step without adding debt, if a tenant has many."""


class GrammarDebts:
    """The debts of tenants. A debt is the CPU time of a tenant's grammars beyond the usual amount per step.

    Debts exist because a grammar that stays just below the limit per step would slow down all steps of its output, and
    the grammar of the next output could do the same. A debt decreases over time, as in a leaky bucket (Turner, "New
    directions in communications", 1986).

    Args:
        limit_seconds: the maximum debt in seconds of CPU time. Tenants with a larger debt may not use grammars.
        paid_per_second: the decrease of each debt per second, in seconds of CPU time.
    """

    def __init__(self, limit_seconds: float = 5.0, paid_per_second: float = 0.1) -> None:
        self._limit_seconds = limit_seconds
        self._paid_per_second = paid_per_second
        self._owed: dict[str, float] = {}
        """Debts in seconds of CPU time, by tenant, at the time ``_counted``."""
        self._counted = 0.0

    def add(self, taken: Mapping[str, tuple[float, int]], now: float) -> None:
        """Add the CPU time of one step to the debts.

        Args:
            taken: the CPU time in seconds and the number of structured outputs, by tenant.
            now: the monotonic time in seconds.
        """
        paid, self._counted = self._paid(now), now
        if self._owed:
            self._owed = {tenant: owed - paid for tenant, owed in self._owed.items() if owed > paid}
        for tenant, (seconds, answers) in taken.items():
            beyond = seconds - max(_USUAL_SECONDS, answers * _USUAL_OF_EACH_SECONDS)
            if beyond > 0.0:
                self._owed[tenant] = self._owed.get(tenant, 0.0) + beyond

    def is_too_much(self, tenant: str, now: float) -> bool:
        """Returns whether a tenant's debt exceeds the limit."""
        return self._owed.get(tenant, 0.0) - self._paid(now) > self._limit_seconds

    def _paid(self, now: float) -> float:
        """Returns the decrease of each debt since the time ``_counted``, in seconds of CPU time."""
        return (now - self._counted) * self._paid_per_second


LIMIT_SECONDS: Final = 0.25
"""Maximum CPU time in seconds to compute one mask, or to accept the tokens of one output in one step."""
TENANT_LIMIT_SECONDS: Final = 1.0
"""Maximum CPU time in seconds per step for all grammars of one tenant, because a tenant may have many grammars."""
_LOOK_SECONDS: Final = 0.01
"""Interval in seconds at which the CPU time of slow grammars is checked."""
_STILL_AT_IT: Final = (
    "the engine is still evaluating another grammar of this tenant, which took too long; retry later, "
    "or without structured output"
)
_OWES_TOO_MUCH: Final = (
    "the grammars of this tenant's structured outputs have recently taken too much CPU time; use simpler grammars, "
    "retry later, or do without structured output"
)
_LEADS_NOWHERE: Final = (
    "the grammar of the structured output allows no next token, because it is infinitely recursive, nothing matches "
    "it, or the answer already matches it and must not end (ignore_eos); use another schema or grammar"
)
NOT_COMPILED: Final = "the engine can't compile the schema or grammar of the structured output; use another one"

_Batch = Iterable[tuple[Any, int, bool, *tuple[Any, ...]]]
"""Masks to compute: for each, the grammar, the row of the mask, whether the grammar applies, and further arguments."""


class GrammarMasks:
    """Runs grammars of requests with a zone on another thread, by replacing methods of vLLM's manager.

    Args:
        manager: vLLM's manager of structured outputs.
        limit_seconds: the maximum CPU time for one mask, in seconds.
        tenant_limit_seconds: the maximum CPU time per step for all grammars of one tenant, in seconds.
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
        """Worker that still runs abandoned work, by tenant."""
        self._taken = Taken()
        """CPU time of the last step's masks, and of drafted tokens that were validated after these masks."""
        self._debts = GrammarDebts()
        self._ended: list[tuple[Request, BindingError | None]] = []
        manager.grammar_bitmask = self.make
        manager._fill_bitmasks = self._fill

    def check(self, request: Request, zone: Zone | None) -> None:
        """Check that a new request may use a grammar, if it needs one.

        Raises:
            BindingError: abandoned work of the tenant is still running, or the tenant's grammars have recently taken
                too much CPU time.
        """
        if zone is None or request.structured_output_request is None:
            return
        if (why := self._refusal_of(zone.spec.tenant)) is not None:
            raise BindingError("unsupported", zone.spec.tenant, why)

    def take_ended(self) -> list[tuple[Request, BindingError | None]]:
        """Returns the requests to end, each with its refusal or None for an internal error, and clears the list."""
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
        """Wrap the grammar of a request in a guarded grammar, unless the request has no zone."""
        grammar, zone = _grammar_of(request), zone_of(request)
        if zone is None or isinstance(grammar, GuardedGrammar | Endless):
            return
        assert request.structured_output_request is not None
        request.structured_output_request.grammar = GuardedGrammar(grammar, request, zone.spec.tenant, self._validate)

    def _without_refused(self, grammars: Sequence[GuardedGrammar]) -> list[GuardedGrammar]:
        """Returns the grammars whose tenants may use grammars now, and ends the requests of the other grammars."""
        refusals = {tenant: self._refusal_of(tenant) for tenant in {grammar.tenant for grammar in grammars}}
        for grammar in grammars:
            if (why := refusals[grammar.tenant]) is not None:
                self._end(grammar, why)
        return [grammar for grammar in grammars if refusals[grammar.tenant] is None]

    def _refusal_of(self, tenant: str) -> str | None:
        """Returns the reason why a tenant may not use grammars now, or None if the tenant may use grammars."""
        if self._left and self._is_left(tenant):
            return _STILL_AT_IT
        return _OWES_TOO_MUCH if self._debts.is_too_much(tenant, time.monotonic()) else None

    def _validate(self, grammar: GuardedGrammar, tokens: list[int]) -> list[int]:
        """Returns the drafted tokens up to the first rejected token, or no tokens if the CPU time is used up."""
        has_taken_all = self._taken.of(grammar.tenant) > self._tenant_limit_seconds
        if has_taken_all or self._refusal_of(grammar.tenant) is not None:
            return []
        future = self._ask([grammar], lambda: grammar.validate_tokens(tokens))
        return [] if future is None else future.result()

    def _ask(self, grammars: Sequence[GuardedGrammar], task: Callable[[], Result]) -> Future[Result] | None:
        """Run a task on another thread, and wait for it.

        Returns:
            The future of the finished task. None if the task was given up, in which case the slow requests have ended.
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
        """Wait until a task is done. If a grammar takes too long, wait only until no thread works on other grammars."""
        ended: list[GuardedGrammar] = []
        pause = self._limit_seconds
        # Several threads may work on the task. The threads of other grammars must stop before they can get new work.
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
        """Give up all grammars of a slow grammar's tenant, so that the tenant occupies only one abandoned thread."""
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
        """Abandon the threads that are still working."""
        assert self._worker is not None
        self._worker.is_left, self._worker = True, None
        # The abandoned threads continue to write to the current masks, so later steps use a copy.
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
        # Pass the current masks instead of the manager, so that this thread, if abandoned, can't write to later masks.
        its_rows = SimpleNamespace(_grammar_bitmask=self._manager._grammar_bitmask, _full_mask=self._manager._full_mask)
        for entry in batch:
            grammar, row, *_ = entry
            if isinstance(grammar, GuardedGrammar):
                grammar.catch_up(row)
            StructuredOutputManager._fill_bitmasks(its_rows, (entry,))

    def _look_at(self, masks: Any, grammars: Sequence[GuardedGrammar]) -> None:
        """End outputs that can't continue, because their masks allow no token or their grammars rejected a token."""
        is_empty = np.bitwise_or.reduce(masks, axis=1) == 0
        masks[is_empty] = -1
        for grammar in grammars:
            if grammar.is_rejected:
                self._end(grammar, _LEADS_NOWHERE if grammar.led_nowhere else None)
            elif is_empty[grammar.rows[0]]:
                self._end(grammar, _LEADS_NOWHERE)
            # Also check the masks after drafted tokens, although the model may still reject these tokens.
            grammar.led_nowhere = bool(is_empty[grammar.rows].any())


def _too_long(seconds: float) -> str:
    return (
        f"the grammar of the structured output takes more than {seconds:g} s of CPU time for the next token; "
        "use a simpler schema or grammar"
    )


def _too_long_together(seconds: float) -> str:
    return (
        f"the grammars of this tenant's structured outputs together take more than {seconds:g} s of CPU time for the "
        "next token of each answer; use simpler grammars, or fewer requests at once"
    )


def _grammar_of(request: Request) -> Any:
    assert request.structured_output_request is not None
    return request.structured_output_request.grammar
