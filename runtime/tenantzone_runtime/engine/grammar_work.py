"""Measures the processor time that the grammars of a step take, on threads outside the step.

Processor time is measured instead of elapsed time: a client is not to blame if the engine is short of processors.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Container
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class GivenUp(Exception):
    """No caller waits for this work any more."""


class Owned(Protocol):
    """The object that work is done for."""

    tenant: str
    """The tenant that owns the object."""


class Taken:
    """The processor time that the grammars of one step have taken. Several threads may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)
        """Processor seconds by tenant."""
        self._for: dict[str, set[int]] = defaultdict(set)
        """Identities of the objects that were worked on, by tenant. They keep no ended answer alive."""

    def add(self, owned: Owned, seconds: float) -> None:
        """Add the processor seconds of one piece of work."""
        with self._lock:
            self._seconds[owned.tenant] += seconds
            self._for[owned.tenant].add(id(owned))

    def of(self, tenant: str) -> float:
        """Returns the processor seconds of one tenant."""
        return self._seconds.get(tenant, 0.0)

    def by_tenant(self) -> dict[str, tuple[float, int]]:
        """Returns the processor seconds and the number of answers, by tenant."""
        with self._lock:
            return {tenant: (seconds, len(self._for[tenant])) for tenant, seconds in self._seconds.items()}


class Work:
    """The grammar work of one step's task.

    Args:
        taken: the step's processor time so far, to which this adds.
    """

    def __init__(self, taken: Taken) -> None:
        self.is_given_up = False
        self._doing: dict[int, tuple[Owned, float]] = {}
        """By thread, the object that it works for, and the thread's processor time when the work began."""
        self._taken = taken

    def do(self, owned: Owned, task: Callable[[], Result]) -> Result:
        """Do one piece of work for a grammar, and measure it.

        Raises:
            GivenUp: no caller waits for it any more, or the work was given up meanwhile, so that the caller stops.
        """
        thread, began = threading.get_ident(), time.thread_time()
        self._doing[thread] = owned, began
        try:
            # Register before checking: a thread that gives up the work looks at the registered threads only afterwards.
            if self.is_given_up:
                raise GivenUp
            result = task()
        finally:
            if self._doing.pop(thread, None) is not None:
                self._taken.add(owned, time.thread_time() - began)
        if self.is_given_up:
            raise GivenUp
        return result

    def give_up(self, tenant: str) -> None:
        """Stop waiting, and count the work in progress for a tenant up to now.

        Its end is unknown, and so is the step that it would fall into.
        """
        self.is_given_up = True
        for thread, (owned, began) in list(self._doing.items()):
            if owned.tenant == tenant and self._doing.pop(thread, None) is not None:
                self._taken.add(owned, _used(thread) - began)

    def is_done_for_others(self, than: Container[Owned]) -> bool:
        """Returns whether work is in progress for objects other than these."""
        return any(owned not in than for owned, _ in list(self._doing.values()))

    def beyond(
        self, limit_seconds: float, tenant_limit_seconds: float, than: Container[Owned]
    ) -> tuple[Owned, bool] | None:
        """Find an object outside ``than`` that exceeds a limit, alone or together with its tenant's earlier work.

        Returns:
            The object, and whether its work in progress alone exceeds the limit; None if there is none.
        """
        for thread, (owned, began) in list(self._doing.items()):
            used = _used(thread) - began
            if owned in than:
                continue
            if used > limit_seconds:
                return owned, True
            if self._taken.of(owned.tenant) + used > tenant_limit_seconds:
                return owned, False
        return None


def _used(thread: int) -> float:
    """Returns the processor seconds that a thread has used."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


class Worker(threading.Thread):
    """Works for one step after another. A daemon thread, so that the process can end at any time."""

    def __init__(self) -> None:
        super().__init__(name="tenantzone-masks", daemon=True)
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self.is_left = False
        """Whether it gets no more work, and ends after the current piece."""
        self.start()

    def submit(self, task: Callable[[], Result]) -> Future[Result]:
        """Submit a task."""
        future: Future[Result] = Future()
        self._work.put((future, task))
        return future

    def run(self) -> None:
        while not self.is_left:
            future, task = self._work.get()
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)


def is_done(future: Future[Any], seconds: float) -> bool:
    """Wait for a future for at most this many seconds. Returns whether it is done."""
    try:
        future.exception(timeout=seconds)
    except TimeoutError:
        return False
    return True
