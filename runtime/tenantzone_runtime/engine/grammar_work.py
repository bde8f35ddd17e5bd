"""Counts what the grammars of a step take of processors, on threads beside it.

Counted is the processor time that a grammar takes, and not the time that passes: an engine that is short of processors
is no mistake of a client's.
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
    """Nobody waits for this work any more."""


class Owned(Protocol):
    """What work is done for."""

    tenant: str
    """Whose it is."""


class Taken:
    """What the grammars of one step have taken of processors. Several threads may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)
        """By tenant."""
        self._for: dict[str, set[int]] = defaultdict(set)
        """For what that was, by tenant: identities, which keep no answer that has ended."""

    def add(self, owned: Owned, seconds: float) -> None:
        """Add something that was done."""
        with self._lock:
            self._seconds[owned.tenant] += seconds
            self._for[owned.tenant].add(id(owned))

    def of(self, tenant: str) -> float:
        """Seconds, of one tenant's."""
        return self._seconds.get(tenant, 0.0)

    def by_tenant(self) -> dict[str, tuple[float, int]]:
        """Seconds, and for how many answers."""
        with self._lock:
            return {tenant: (seconds, len(self._for[tenant])) for tenant, seconds in self._seconds.items()}


class Work:
    """What is asked of grammars for one step, once.

    Args:
        taken: what was taken in this step before, to which this adds.
    """

    def __init__(self, taken: Taken) -> None:
        self.is_given_up = False
        self._doing: dict[int, tuple[Owned, float]] = {}
        """By thread, for whom it works, and what it had used of a processor when it began."""
        self._taken = taken

    def do(self, owned: Owned, task: Callable[[], Result]) -> Result:
        """Do one thing for a grammar, and count it.

        Raises:
            GivenUp: nobody waits for it any more; also if that has happened meanwhile, so that whoever asked stops.
        """
        thread, began = threading.get_ident(), time.thread_time()
        self._doing[thread] = owned, began
        try:
            # Said before: whoever gives up looks who is here only after.
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
        """Wait for nothing more, and count what is being done for a tenant as far as it has come.

        When it ends nobody knows, nor into which step that would fall.
        """
        self.is_given_up = True
        for thread, (owned, began) in list(self._doing.items()):
            if owned.tenant == tenant and self._doing.pop(thread, None) is not None:
                self._taken.add(owned, _used(thread) - began)

    def is_done_for_others(self, than: Container[Owned]) -> bool:
        """Whether something is done for others than these."""
        return any(owned not in than for owned, _ in list(self._doing.values()))

    def beyond(
        self, limit_seconds: float, tenant_limit_seconds: float, than: Container[Owned]
    ) -> tuple[Owned, bool] | None:
        """Somebody but these who, or whose tenant in all, has taken more of processors than so much.

        Returns:
            For whom it is, and whether it was what is done for it now; None if there is nobody.
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
    """Seconds of a processor's time, by a thread."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


class Worker(threading.Thread):
    """Works for one step after the other. A daemon: a process ends, whatever it is at."""

    def __init__(self) -> None:
        super().__init__(name="tenantzone-masks", daemon=True)
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self.is_left = False
        """Whether it gets no more work, and ends with what it is at."""
        self.start()

    def submit(self, task: Callable[[], Result]) -> Future[Result]:
        """Have something done."""
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
    """Whether something is done, at the latest after so long."""
    try:
        future.exception(timeout=seconds)
    except TimeoutError:
        return False
    return True
