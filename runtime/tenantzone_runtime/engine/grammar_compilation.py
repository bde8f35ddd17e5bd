"""Compiles the grammars of structured answers by turns, tenant by tenant, in the engine core.

vLLM compiles in the order in which requests came, on few threads: whoever sends many at once makes everybody wait, and
so does whoever sends a few of those that take hours. What is being compiled can't be stopped.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tenantzone_runtime.seal import SEAL_ARGUMENT, SealError, unseal

_THREADS = 16
"""How many tenants' grammars are compiled at the same time; the operating system shares out the processors."""

Compile = Callable[[Request], Any]


class TurnsOfTenants:
    """Does work for requests, for each tenant one thing at a time; in the place of an executor.

    So whoever asks for what takes hours waits for it alone: it keeps one thread of several.

    Args:
        pool: does it, in the order in which it is told to.
        tenant_of: whose a request is.
    """

    def __init__(self, pool: ThreadPoolExecutor, tenant_of: Callable[[Request], str]) -> None:
        self._pool = pool
        self._tenant_of = tenant_of
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Compile, Request]]] = {}
        """By tenant, what is being done first."""

    def submit(self, compile: Compile, request: Request) -> Future[Any]:
        """Have something done for a request when it is its tenant's turn."""
        future: Future[Any] = Future()
        tenant = self._tenant_of(request)
        with self._lock:
            waiting = self._waiting.setdefault(tenant, deque())
            waiting.append((future, compile, request))
            if len(waiting) == 1:
                self._pool.submit(self._do_next, tenant)
        return future

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """End the threads, as an executor does."""
        self._pool.shutdown(*args, **kwargs)

    def _do_next(self, tenant: str) -> None:
        future, compile, request = self._waiting[tenant][0]
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(compile(request))
            except Exception as error:
                future.set_exception(error)
        with self._lock:
            waiting = self._waiting[tenant]
            waiting.popleft()
            if waiting:
                # Behind what other tenants have asked for meanwhile.
                self._pool.submit(self._do_next, tenant)
            else:
                del self._waiting[tenant]


def compilation_of(request: Request) -> Future[Any] | None:
    """The compilation of a request's grammar; None if it has ended, or the answer needs no grammar."""
    structured = request.structured_output_request
    # Not the property, which replaces a future that is done by the grammar.
    grammar = None if structured is None else structured._grammar
    return grammar if isinstance(grammar, Future) and not grammar.done() else None


def cancel_compilation(request: Request) -> None:
    """Have the grammar of a request that is not to be answered never compiled, unless that has begun."""
    compilation = compilation_of(request)
    if compilation is not None:
        compilation.cancel()


def compile_in_turns(manager: StructuredOutputManager, seal_key: bytes, *, threads: int = _THREADS) -> None:
    """Have an engine's grammars compiled by turns.

    Args:
        manager: of the engine's structured answers.
        seal_key: shared with the front door, by whose seal a tenant is known before the scheduler has the request.
        threads: how many tenants' grammars are compiled at the same time.
    """

    def tenant_of(request: Request) -> str:
        params = request.sampling_params
        seal = (params.extra_args or {}).get(SEAL_ARGUMENT, "") if params is not None else ""
        try:
            return unseal(seal_key, seal, request.cache_salt or "").tenant if isinstance(seal, str) else ""
        except SealError:
            return ""

    # There is none where the model has no tokenizer.
    if isinstance(pool := getattr(manager, "executor", None), ThreadPoolExecutor):
        pool.shutdown()  # nothing was asked of it yet
        manager.executor = TurnsOfTenants(ThreadPoolExecutor(threads, "tenantzone-grammars"), tenant_of)
