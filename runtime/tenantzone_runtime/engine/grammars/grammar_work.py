"""Measures the CPU time that the grammars of a step take, on threads outside the step.

It measures CPU time instead of elapsed time, because clients must not be refused when the engine is short of CPUs.
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
    """Raised on the working thread when no caller waits for the work any more."""


class Owned(Protocol):
    """An object of a tenant that work is done for, such as a grammar."""

    tenant: str
    """The tenant that owns the object."""


class Taken:
    """CPU time that the grammars of one step have taken. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)
        """CPU time in seconds by tenant."""
        self._for: dict[str, set[int]] = defaultdict(set)
        """Ids (``id()``) of the objects that were worked on, by tenant. References would keep ended answers alive."""

    def add(self, owned: Owned, seconds: float) -> None:
        """Add the CPU time of one piece of work, in seconds."""
        with self._lock:
            self._seconds[owned.tenant] += seconds
            self._for[owned.tenant].add(id(owned))

    def of(self, tenant: str) -> float:
        """Returns the CPU time of one tenant in seconds."""
        return self._seconds.get(tenant, 0.0)

    def by_tenant(self) -> dict[str, tuple[float, int]]:
        """Returns the CPU time in seconds and the number of answers, by tenant."""
        with self._lock:
            return {tenant: (seconds, len(self._for[tenant])) for tenant, seconds in self._seconds.items()}


class Work:
    """The grammar work of one step's task.

    Args:
        taken: the step's CPU time so far, to which the work is added.
    """

    def __init__(self, taken: Taken) -> None:
        self.is_given_up = False
        self._doing: dict[int, tuple[Owned, float]] = {}
        """Work in progress by thread: the object, and the thread's CPU time when the work began."""
        self._taken = taken

    def do(self, owned: Owned, task: Callable[[], Result]) -> Result:
        """Do one piece of work for a grammar, and measure it.

        Raises:
            GivenUp: the work was given up before or meanwhile, so the caller must stop.
        """
        thread, began = threading.get_ident(), time.thread_time()
        self._doing[thread] = owned, began
        try:
            # Register before checking, because `give_up` sets the flag first and then reads the registered threads.
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
        """Give up the work, and count the tenant's work in progress up to now.

        The rest is not counted, because it is unknown when and in which step it will end.
        """
        self.is_given_up = True
        for thread, (owned, began) in list(self._doing.items()):
            if owned.tenant == tenant and self._doing.pop(thread, None) is not None:
                self._taken.add(owned, _used(thread) - began)

    def is_done_for_others(self, than: Container[Owned]) -> bool:
        """Returns whether work is in progress for any object that is not in ``than``."""
        return any(owned not in than for owned, _ in list(self._doing.values()))

    def beyond(
        self, limit_seconds: float, tenant_limit_seconds: float, than: Container[Owned]
    ) -> tuple[Owned, bool] | None:
        """Find an object outside ``than`` that exceeds a limit, alone or together with its tenant's earlier work.

        Returns:
            The object, and whether its work in progress alone exceeds ``limit_seconds``. None if no object does.
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
    """Returns the CPU time that a thread has used, in seconds."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


class Worker(threading.Thread):
    """Thread that runs the tasks of one step after another. A daemon thread, so that the process can always exit."""

    def __init__(self) -> None:
        super().__init__(name="tenantzone-masks", daemon=True)
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self.is_left = False
        """Whether the thread was abandoned, so that it ends after its current task."""
        self.start()

    def submit(self, task: Callable[[], Result]) -> Future[Result]:
        """Submit a task. Returns its future."""
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
    """Wait for a future with a timeout in seconds. Returns whether it is done."""
    try:
        future.exception(timeout=seconds)
    except TimeoutError:
        return False
    return True
