"""Threads that wait for a disk in place of the caller, and take work of each tenant in turn."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

Work = Callable[[], None]


class Workers:
    """So many threads. They end with the process, even when a disk never answers.

    Args:
        name: of the threads.
        count: how many.
    """

    def __init__(self, name: str, count: int) -> None:
        self._queues: OrderedDict[str, deque[Work]] = OrderedDict()
        self._changed = threading.Condition()
        self._stopped = False
        self._waiting = 0
        """Threads that have nothing to do."""
        for number in range(count):
            # A thread that hangs in a call to the disk must not keep the process from ending.
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    def submit(self, tenant: str, work: Work) -> None:
        """Have work done, after what was given for the same tenant before. It must not raise."""
        with self._changed:
            self._queues.setdefault(tenant, deque()).append(work)
            self._changed.notify()

    @property
    def has_idle(self) -> bool:
        """Whether a thread has nothing to do, and nothing waits to be done. From any thread."""
        with self._changed:
            return self._waiting > sum(map(len, self._queues.values()))

    def stop(self) -> None:
        """Do nothing more; what is being done goes on."""
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
