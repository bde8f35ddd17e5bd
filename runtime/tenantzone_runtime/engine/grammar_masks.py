"""Bounds how long one request's grammar may keep a step of the engine.

Before each token of a structured answer the grammar library says which tokens may come: a mask. By a grammar of a few
hundred bytes that takes it seconds, or hours, and the step waits, with everybody in it. What has begun can't be
stopped. So masks are made on a thread beside the step; one that takes too long is left to its thread, its request ends,
and the step goes on without it. While that thread is still at it, its tenant gets no other grammar.

Counted is the processor time that a mask takes, and not the time that passes: an engine that is short of processors is
no mistake of a client's.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Final

from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from tenantzone_runtime.engine.binding import BindingError
from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones.zone import Zone

LIMIT_SECONDS: Final = 0.25
"""Of a processor's time, for one mask."""
TENANT_LIMIT_SECONDS: Final = 1.0
"""For all masks of one tenant in a step: as many answers may be written at once, none of which takes too long."""
_LOOK_SECONDS: Final = 0.01
"""Between two looks at what a mask has taken."""
_STILL_AT_IT: Final = (
    "the engine is still at the form of an answer of this tenant's that took it too long; ask without a form, or later"
)

_Batch = Iterable[tuple[Any, int, bool, *tuple[Any, ...]]]
"""Grammars, each with its row of masks, whether it applies, and what vLLM says besides."""


class _GivenUp(Exception):
    """Nobody waits for these masks any more."""


class Endless(StructuredOutputGrammar):
    """Takes the place of a grammar whose mask is still being made, which nobody else may touch: anything goes."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def rollback(self, num_tokens: int) -> None:
        pass

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """Never called: it is terminated."""

    def is_terminated(self) -> bool:
        return True

    def reset(self) -> None:
        pass


class _Masks:
    """The masks of one step, as they are made once.

    Args:
        requests: by the identity of their grammars.
    """

    def __init__(self, requests: Mapping[int, Request]) -> None:
        self.requests = requests
        self.is_given_up = False
        self._filling: dict[int, tuple[Request, float]] = {}
        """By thread, whose mask it makes, and what it had used of a processor when it began."""
        self._made: list[tuple[str | None, float]] = []
        """Of masks that are made: whose, and what they have used. A list, which several threads may append to."""

    def fill(self, grammar: Any, rows: Any, row: int) -> None:
        """Make one mask."""
        thread, request, began = threading.get_ident(), self.requests[id(grammar)], time.thread_time()
        self._filling[thread] = request, began
        try:
            # Said before: whoever gives up looks who is here only after.
            if self.is_given_up:
                raise _GivenUp
            grammar.fill_bitmask(rows, row)
        finally:
            del self._filling[thread]
            self._made.append((_tenant_of(request), time.thread_time() - began))

    def are_filled_for_others(self, than: Sequence[Request]) -> bool:
        """Whether a mask is being made for another request than these."""
        return any(request not in than for request, _ in list(self._filling.values()))

    def beyond(
        self, limit_seconds: float, tenant_limit_seconds: float, than: Sequence[Request]
    ) -> tuple[Request, bool] | None:
        """A request but for these whose mask, or whose tenant's masks together, have taken more than so much.

        Returns:
            The request, and whether it was its own mask; None if there is none.
        """
        made: dict[str | None, float] = {}
        for tenant, used in list(self._made):
            made[tenant] = made.get(tenant, 0.0) + used
        for thread, (request, began) in list(self._filling.items()):
            used = time.clock_gettime(time.pthread_getcpuclockid(thread)) - began
            if request in than:
                continue
            if used > limit_seconds:
                return request, True
            if made.get(_tenant_of(request), 0.0) + used > tenant_limit_seconds:
                return request, False
        return None


class _Worker(threading.Thread):
    """Makes masks, one step's after the other's. A daemon: a process ends, whatever it is at."""

    def __init__(self) -> None:
        super().__init__(name="tenantzone-masks", daemon=True)
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self.is_left = False
        """Whether it gets no more work, and ends with what it is at."""
        self.start()

    def submit(self, make: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._work.put((future, make))
        return future

    def run(self) -> None:
        while not self.is_left:
            future, make = self._work.get()
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)


class GrammarMasks:
    """Makes the masks of an engine's structured answers in the place of vLLM's manager, where zones are declared.

    Args:
        manager: vLLM's own.
        limit_seconds: of a processor's time, for one mask.
        tenant_limit_seconds: for all masks of one tenant in a step.
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
        self._current: _Masks | None = None
        self._worker: _Worker | None = None
        self._left: dict[str, _Worker] = {}
        """Who is still at a mask that was given up, by tenant."""
        self._ended: list[tuple[Request, BindingError]] = []
        manager.grammar_bitmask = self.make
        manager._fill_bitmasks = self._fill

    def check(self, request: Request, zone: Zone | None) -> None:
        """Check that a request whose answer is to be structured may come.

        Raises:
            BindingError: a mask of its tenant's that was given up is still being made.
        """
        if zone is None or request.structured_output_request is None:
            return
        self._left = {tenant: worker for tenant, worker in self._left.items() if worker.is_alive()}
        if zone.spec.tenant in self._left:
            raise BindingError("unsupported", zone.spec.tenant, _STILL_AT_IT)

    def take_ended(self) -> list[tuple[Request, BindingError]]:
        """The requests whose masks were given up since the last call, which have to end, and why."""
        ended, self._ended = self._ended, []
        return ended

    def make(self, requests: dict[str, Request], ids: list[str], spec_tokens: dict[str, list[int]]) -> Any:
        """Make the masks of a step, as vLLM's manager does."""
        self._current = None
        if not any(_tenant_of(requests[name]) is not None for name in ids):
            return self._make(requests, ids, spec_tokens)
        while True:
            grammars = {id(_grammar_of(requests[name])): requests[name] for name in ids}
            self._current = masks = _Masks(grammars)
            if self._worker is None:
                self._worker = _Worker()
            future = self._worker.submit(lambda: self._make(requests, ids, spec_tokens))
            self._await(future, masks)
            if not masks.is_given_up:
                return future.result()

    def _await(self, future: Future[Any], masks: _Masks) -> None:
        """Wait until masks are made, or one takes too long and none is made for anybody else any more."""
        ended: list[Request] = []
        pause = self._limit_seconds
        # Where masks are made on several threads, the others must have stopped before they are made again.
        while masks.are_filled_for_others(ended) if ended else not _is_done(future, pause):
            pause = _LOOK_SECONDS
            if ended:
                _is_done(future, pause)
            if (slow := masks.beyond(self._limit_seconds, self._tenant_limit_seconds, ended)) is not None:
                ended += self._end(*slow, masks)
        if ended:
            self._leave()

    def _end(self, slow: Request, is_slow_itself: bool, masks: _Masks) -> list[Request]:
        """Give up a mask, and those of all its tenant's: it keeps one thread, and not as many as it has requests."""
        assert self._worker is not None
        masks.is_given_up = True
        tenant = _tenant_of(slow)
        self._left[tenant or ""] = self._worker
        ended = [request for request in masks.requests.values() if _tenant_of(request) == tenant]
        for request in ended:
            if not is_slow_itself:
                why = _too_long_together(self._tenant_limit_seconds)
            else:
                why = _too_long(self._limit_seconds) if request is slow else _STILL_AT_IT
            self._ended.append((request, BindingError("unsupported", tenant, why)))
            assert request.structured_output_request is not None
            request.structured_output_request.grammar = Endless()
        return ended

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

    def _fill(self, batch: _Batch) -> None:
        masks, rows = self._current, self._manager._grammar_bitmask
        # Not the manager: a thread that is left would find the rows there that have taken the place of its own.
        its_rows = SimpleNamespace(_grammar_bitmask=rows, _full_mask=self._manager._full_mask)
        for entry in batch:
            grammar, row, applies, *_ = entry
            if applies and masks is not None and id(grammar) in masks.requests and not grammar.is_terminated():
                masks.fill(grammar, rows, row)
            else:
                StructuredOutputManager._fill_bitmasks(its_rows, (entry,))
            if masks is not None and masks.is_given_up:
                raise _GivenUp


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


def _tenant_of(request: Request) -> str | None:
    zone = zone_of(request)
    return None if zone is None else zone.spec.tenant


def _grammar_of(request: Request) -> Any:
    assert request.structured_output_request is not None
    return request.structured_output_request.grammar


def _is_done(future: Future[Any], seconds: float) -> bool:
    try:
        future.exception(timeout=seconds)
    except TimeoutError:
        return False
    return True
