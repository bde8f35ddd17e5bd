"""Runs the grammar work of a step on other threads, and measures the CPU time of each grammar.

CPU time is measured instead of elapsed time, so that no client is refused because the engine has too few CPUs.
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
    """Raised on a working thread to stop it, because the step no longer waits for the work."""


class Owned(Protocol):
    """An object that belongs to a tenant and needs CPU time, such as a grammar."""

    tenant: str
    """The tenant that owns the object."""


class Taken:
    """The CPU time that the grammars of one step have taken. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)
        """CPU time in seconds by tenant."""
        self._for: dict[str, set[int]] = defaultdict(set)
        """Values of ``id()`` of the objects with work, by tenant. References would keep ended requests in memory."""

    def add(self, owned: Owned, seconds: float) -> None:
        """Add the CPU time of one piece of work, in seconds."""
        with self._lock:
            self._seconds[owned.tenant] += seconds
            self._for[owned.tenant].add(id(owned))

    def of(self, tenant: str) -> float:
        """Returns the CPU time of one tenant in seconds."""
        return self._seconds.get(tenant, 0.0)

    def by_tenant(self) -> dict[str, tuple[float, int]]:
        """Returns the CPU time in seconds and the number of objects with work, by tenant."""
        with self._lock:
            return {tenant: (seconds, len(self._for[tenant])) for tenant, seconds in self._seconds.items()}


class Work:
    """The grammar work of one step's task.

    Args:
        taken: the step's CPU time so far. The time of this work is added to it.
    """

    def __init__(self, taken: Taken) -> None:
        self.is_given_up = False
        self._doing: dict[int, tuple[Owned, float]] = {}
        """Work in progress, by thread id: the object, and the thread's CPU time in seconds when the work began."""
        self._taken = taken

    def do(self, owned: Owned, task: Callable[[], Result]) -> Result:
        """Run one piece of work for an object, measure its CPU time, and return its result.

        Raises:
            GivenUp: ``give_up`` was called before or during the work, so the caller must stop.
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
        """Make all threads stop after their current piece of work, and add the CPU time that a tenant has used so far.

        Later CPU time of the tenant's current pieces is not counted, because they may end in a later step or never.
        """
        self.is_given_up = True
        for thread, (owned, began) in list(self._doing.items()):
            if owned.tenant == tenant and self._doing.pop(thread, None) is not None:
                self._taken.add(owned, _used(thread) - began)

    def is_done_for_others(self, than: Container[Owned]) -> bool:
        """Returns whether any work is in progress for an object that is not in ``than``."""
        return any(owned not in than for owned, _ in list(self._doing.values()))

    def beyond(
        self, limit_seconds: float, tenant_limit_seconds: float, than: Container[Owned]
    ) -> tuple[Owned, bool] | None:
        """Find an object outside ``than`` whose work in progress exceeds a limit.

        Returns:
            The object, and True if the work exceeds ``limit_seconds``, or False if the work, together with the tenant's
            earlier work, exceeds ``tenant_limit_seconds``. None if no work exceeds a limit.
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
    """Thread that runs one task after another. It is a daemon thread, so that abandoned work can't delay the exit."""

    def __init__(self) -> None:
        super().__init__(name="tenantzone-masks", daemon=True)
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self.is_left = False
        """Whether the thread was abandoned and must end after its current task."""
        self.start()

    def submit(self, task: Callable[[], Result]) -> Future[Result]:
        """Submit a task, and return the future of its result."""
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
    """Wait for a future with a timeout in seconds. Returns whether the future is done."""
    try:
        future.exception(timeout=seconds)
    except TimeoutError:
        return False
    return True
