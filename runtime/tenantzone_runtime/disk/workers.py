"""Threads that do blocking work for the caller, and a queue of their results. Tenants take turns."""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue

logger = logging.getLogger(__name__)

Work = Callable[[], None]
Ended = Callable[[Exception | None], None]
"""Called on the caller's thread with the error of the work, or None."""


class Workers:
    """Daemon threads that serve one queue for each tenant, in turn.

    Args:
        name: name of the threads.
        count: number of threads.
    """

    def __init__(self, name: str, count: int) -> None:
        self._queues: OrderedDict[str, deque[Work]] = OrderedDict()
        self._changed = threading.Condition()
        self._stopped = False
        self._waiting = 0
        """Number of idle threads."""
        for number in range(count):
            # Use daemon threads, because a thread that hangs in a disk call must not keep the process from ending.
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    def submit(self, tenant: str, work: Work) -> None:
        """Queue ``work`` after the same tenant's earlier work. ``work`` must not raise an error."""
        with self._changed:
            self._queues.setdefault(tenant, deque()).append(work)
            self._changed.notify()

    @property
    def has_idle(self) -> bool:
        """Whether there are more idle threads than queued work. Thread-safe."""
        with self._changed:
            return self._waiting > sum(map(len, self._queues.values()))

    def stop(self) -> None:
        """Drop the queued work, and end the threads once their work in progress is done."""
        with self._changed:
            self._stopped = True
            self._queues.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Work | None:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._stopped or self._queues)
            self._waiting -= 1
            if self._stopped:
                return None
            tenant, queue = self._queues.popitem(last=False)
            work = queue.popleft()
            if queue:
                self._queues[tenant] = queue
            return work


class Results:
    """A queue of results from threads, which the caller's thread processes.

    Args:
        tier: the tier's name in log messages.
        errors: the types of errors that work is expected to raise. Errors of other types are logged.
    """

    def __init__(self, tier: str, *errors: type[Exception]) -> None:
        self._tier, self._errors = tier, errors
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def run(self, workers: Workers, tenant: str, work: Callable[[], object], ended: Ended) -> None:
        """Run ``work`` on a thread. It may raise errors. After its end, the next :meth:`take_note` calls ``ended``."""
        workers.submit(tenant, lambda: self.add(ended, self.error_of(work)))

    def add(self, ended: Ended, error: Exception | None) -> None:
        """Add a result, for which the next :meth:`take_note` calls ``ended``. Thread-safe."""
        self._events.put(partial(ended, error))

    def error_of(self, work: Callable[[], object]) -> Exception | None:
        """Call ``work``, and return its error, or None. Thread-safe."""
        try:
            work()
        except self._errors as error:
            return error
        except Exception as error:
            # Catch every exception, because no response from a disk, storage or manager may end the thread.
            logger.exception("Unexpected error in a thread of the %s tier", self._tier)
            return error
        return None

    def take_note(self) -> None:
        """Call the ``ended`` callbacks of all finished work, on the calling thread."""
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            event()
