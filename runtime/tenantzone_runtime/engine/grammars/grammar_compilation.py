"""Compiles the grammars of structured outputs in the engine core, with fairness among tenants.

vLLM compiles grammars in order of arrival, on few threads. So one client makes all other clients wait if it sends many
grammars at once, or a few grammars that take hours. A compilation that has begun can't be stopped.
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
"""Maximum number of tenants whose grammars are compiled at the same time, with one thread per tenant."""

Compile = Callable[[Request], Any]


class TurnsOfTenants:
    """An executor that works on at most one request of each tenant at a time.

    A tenant whose grammar takes hours delays only its own requests, because it occupies only one thread.

    Args:
        pool: the thread pool, which runs work in the order of submission.
        tenant_of: returns the tenant of a request.
    """

    def __init__(self, pool: ThreadPoolExecutor, tenant_of: Callable[[Request], str]) -> None:
        self._pool = pool
        self._tenant_of = tenant_of
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Compile, Request]]] = {}
        """Unfinished work by tenant. Only the first entry of each tenant has been submitted to the pool."""

    def submit(self, compile: Compile, request: Request) -> Future[Any]:
        """Queue a call of ``compile`` with a request behind the earlier work of the request's tenant.

        Returns:
            The future of the result.
        """
        future: Future[Any] = Future()
        tenant = self._tenant_of(request)
        with self._lock:
            waiting = self._waiting.setdefault(tenant, deque())
            waiting.append((future, compile, request))
            if len(waiting) == 1:
                self._pool.submit(self._do_next, tenant)
        return future

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Shut down the thread pool, with the arguments of ``Executor.shutdown``."""
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
                # Submit the tenant's next work only now, so that it runs after the work that other tenants submitted.
                self._pool.submit(self._do_next, tenant)
            else:
                del self._waiting[tenant]


def compilation_of(request: Request) -> Future[Any] | None:
    """Returns the future of a grammar that is still being compiled for a request, or None if there is none."""
    structured = request.structured_output_request
    # Read `_grammar`, because the property `grammar` replaces a finished future by its result.
    grammar = None if structured is None else structured._grammar
    return grammar if isinstance(grammar, Future) and not grammar.done() else None


def cancel_compilation(request: Request) -> None:
    """Cancel the compilation of a request's grammar, unless the compilation has begun."""
    compilation = compilation_of(request)
    if compilation is not None:
        compilation.cancel()


def compile_in_turns(manager: StructuredOutputManager, seal_key: bytes, *, threads: int = _THREADS) -> None:
    """Make an engine compile its grammars with fairness among tenants.

    Args:
        manager: the engine's manager of structured outputs.
        seal_key: the key with which the frontend makes seals. The seal names the tenant of a request.
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
