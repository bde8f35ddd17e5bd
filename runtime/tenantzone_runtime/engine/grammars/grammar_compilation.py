"""Compiles the grammars of structured answers in the engine core, with fairness among tenants.

vLLM compiles in order of arrival, on few threads. So a client makes all others wait if it sends many grammars at once,
or a few that take hours. A compilation can't be stopped once it has begun.
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
"""Maximum number of tenants whose grammars are compiled at the same time, each on a thread."""

Compile = Callable[[Request], Any]


class TurnsOfTenants:
    """An executor that works on one request of each tenant at a time.

    A tenant whose grammar takes hours delays only itself: it occupies one thread of several.

    Args:
        pool: runs the work in the order of submission.
        tenant_of: returns the tenant of a request.
    """

    def __init__(self, pool: ThreadPoolExecutor, tenant_of: Callable[[Request], str]) -> None:
        self._pool = pool
        self._tenant_of = tenant_of
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Compile, Request]]] = {}
        """Work by tenant. The first entry of each tenant is queued in the pool or in progress."""

    def submit(self, compile: Compile, request: Request) -> Future[Any]:
        """Submit work for a request, to be done at its tenant's turn. Returns its future."""
        future: Future[Any] = Future()
        tenant = self._tenant_of(request)
        with self._lock:
            waiting = self._waiting.setdefault(tenant, deque())
            waiting.append((future, compile, request))
            if len(waiting) == 1:
                self._pool.submit(self._do_next, tenant)
        return future

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Stop the threads, as an executor does."""
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
                # Requeue behind the work that other tenants have submitted meanwhile.
                self._pool.submit(self._do_next, tenant)
            else:
                del self._waiting[tenant]


def compilation_of(request: Request) -> Future[Any] | None:
    """Returns the pending compilation of a request's grammar, or None if it has ended or no grammar is needed."""
    structured = request.structured_output_request
    # Don't use the property, which replaces a finished future by the grammar.
    grammar = None if structured is None else structured._grammar
    return grammar if isinstance(grammar, Future) and not grammar.done() else None


def cancel_compilation(request: Request) -> None:
    """Cancel the compilation of a grammar whose request will not be answered, unless it has begun."""
    compilation = compilation_of(request)
    if compilation is not None:
        compilation.cancel()


def compile_in_turns(manager: StructuredOutputManager, seal_key: bytes, *, threads: int = _THREADS) -> None:
    """Make an engine compile its grammars with fairness among tenants.

    Args:
        manager: the engine's manager of structured outputs.
        seal_key: the key shared with the frontend. A request's seal names the tenant before the scheduler binds it.
        threads: the maximum number of tenants whose grammars are compiled at the same time.
    """

    def tenant_of(request: Request) -> str:
        params = request.sampling_params
        seal = (params.extra_args or {}).get(SEAL_ARGUMENT, "") if params is not None else ""
        try:
            return unseal(seal_key, seal, request.cache_salt or "").tenant if isinstance(seal, str) else ""
        except SealError:
            return ""

    # The executor is missing if the model has no tokenizer.
    if isinstance(pool := getattr(manager, "executor", None), ThreadPoolExecutor):
        pool.shutdown()  # no work was submitted yet
        manager.executor = TurnsOfTenants(ThreadPoolExecutor(threads, "tenantzone-grammars"), tenant_of)
