"""Threads that wait for a disk in place of the caller, with round-robin scheduling of tenants."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

Work = Callable[[], None]


class Workers:
    """A number of daemon threads, which end with the process even if a disk never responds.

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
            # A thread that hangs in a call to the disk must not keep the process from ending.
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    def submit(self, tenant: str, work: Work) -> None:
        """Submit work, which begins after the same tenant's earlier work. It must not raise."""
        with self._changed:
            self._queues.setdefault(tenant, deque()).append(work)
            self._changed.notify()

    @property
    def has_idle(self) -> bool:
        """Whether a thread is idle and no work is queued. Thread-safe."""
        with self._changed:
            return self._waiting > sum(map(len, self._queues.values()))

    def stop(self) -> None:
        """Drop the queued work; work in progress continues."""
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
