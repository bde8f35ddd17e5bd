"""Compiles the grammars of structured answers by turns, tenant by tenant, in the engine core.

vLLM compiles in the order in which requests came, on few threads: whoever sends many at once makes everybody wait.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tenantzone_runtime.seal import SEAL_ARGUMENT, SealError, unseal

Compile = Callable[[Request], Any]


class TurnsOfTenants:
    """Does work for requests, one of each tenant's in turn; in the place of an executor.

    Args:
        pool: does it, several at a time if it has several threads.
        tenant_of: whose a request is.
    """

    def __init__(self, pool: ThreadPoolExecutor, tenant_of: Callable[[Request], str]) -> None:
        self._pool = pool
        self._tenant_of = tenant_of
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Compile, Request]]] = {}
        """By tenant, the one whose turn it is first."""

    def submit(self, compile: Compile, request: Request) -> Future[Any]:
        """Have something done for a request when it is its tenant's turn."""
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.setdefault(self._tenant_of(request), deque()).append((future, compile, request))
        # As many of them as there is work: which work it is, is decided when there is a thread.
        self._pool.submit(self._do_next)
        return future

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """End the threads, as an executor does."""
        self._pool.shutdown(*args, **kwargs)

    def _do_next(self) -> None:
        with self._lock:
            tenant, waiting = next(iter(self._waiting.items()))
            future, compile, request = waiting.popleft()
            del self._waiting[tenant]
            if waiting:
                self._waiting[tenant] = waiting
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(compile(request))
        except Exception as error:
            future.set_exception(error)


def compile_in_turns(manager: StructuredOutputManager, seal_key: bytes) -> None:
    """Have an engine's grammars compiled by turns.

    Args:
        manager: of the engine's structured answers.
        seal_key: shared with the front door, by whose seal a tenant is known before the scheduler has the request.
    """

    def tenant_of(request: Request) -> str:
        params = request.sampling_params
        seal = (params.extra_args or {}).get(SEAL_ARGUMENT, "") if params is not None else ""
        try:
            return unseal(seal_key, seal, request.cache_salt or "") if isinstance(seal, str) else ""
        except SealError:
            return ""

    # There is none where the model has no tokenizer.
    if isinstance(pool := getattr(manager, "executor", None), ThreadPoolExecutor):
        manager.executor = TurnsOfTenants(pool, tenant_of)
