"""Threads that wait in place of the caller, and what they have done, which is noted on the caller's own thread."""

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Final

from tenantzone_runtime.disk.sealing import CorruptObjectError
from tenantzone_runtime.disk.transfers import AbandonedError
from tenantzone_runtime.disk.workers import Workers
from tenantzone_runtime.shared.client import ManagerError
from tenantzone_runtime.shared.settings import SharedSettings

logger = logging.getLogger(__name__)

Work = Callable[[], object]
"""May raise what a manager, a storage or a seal does."""
Steps = Iterator[str]
"""Work that waits for several in turn: it gives the name of each storage before it waits for it, and an empty one
before it waits for the manager; and may raise what those do."""
Ended = Callable[[Exception | None], None]
"""Is called on the caller's thread with what became of work."""

_MOST_STORAGES: Final = 32
"""With threads of their own; any further ones share some."""
_OTHERS: Final = "\n"
"""No storage's name."""


class Threads:
    """Of one tier: some ask the manager, some read, some write. Each takes work of each tenant in turn.

    Each storage has threads of its own, so that one that hangs keeps nobody from another.

    Args:
        settings: how many there are.
    """

    def __init__(self, settings: SharedSettings) -> None:
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._askers = Workers("tenantzone-shared-ask", settings.askers)
        self._readers = _ByStorage("tenantzone-shared-read", settings.readers)
        self._writers = _ByStorage("tenantzone-shared-write", settings.writers)

    def ask(self, tenant: str, work: Work, ended: Ended) -> None:
        """Have the manager asked."""
        self._askers.submit(tenant, lambda: self._events.put(partial(ended, _error_of(work))))

    def read(self, tenant: str, steps: Steps, ended: Ended) -> None:
        """Have storages read."""
        self._go_on(self._readers, tenant, steps, ended)

    def write(self, tenant: str, steps: Steps, ended: Ended) -> None:
        """Have storages written, with what has to be asked for that."""
        self._go_on(self._writers, tenant, steps, ended)

    def may_read_at_once(self, storage: str) -> bool:
        """Whether a thread would begin to read a storage now. From any thread, as the next one."""
        return self._readers.of(storage).has_idle

    def may_write_at_once(self, storage: str) -> bool:
        """Whether a thread would begin to write to a storage now."""
        return self._writers.of(storage).has_idle

    def take_note(self) -> None:
        """Call what waits for work that has ended."""
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            event()

    def stop(self) -> None:
        """Begin nothing more."""
        for workers in (self._askers, self._readers, self._writers):
            workers.stop()

    def _go_on(self, by_storage: "_ByStorage", tenant: str, steps: Steps, ended: Ended) -> None:
        """Do the next step, and have a thread do what is after it that waits for something else."""
        storages: list[str] = []
        error = _error_of(lambda: storages.extend(islice(steps, 1)))
        if storages:
            by_storage.of(storages[0]).submit(tenant, partial(self._go_on, by_storage, tenant, steps, ended))
        else:
            self._events.put(partial(ended, error))


class _ByStorage:
    """Threads for each storage, from the first time that it is waited for."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._workers: dict[str, Workers] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def of(self, storage: str) -> Workers:
        """Those of one storage. From any thread."""
        with self._lock:
            if storage not in self._workers and len(self._workers) >= _MOST_STORAGES:
                storage = _OTHERS
            if storage not in self._workers:
                self._workers[storage] = workers = Workers(self._name, self._count)
                if self._is_stopped:
                    workers.stop()
            return self._workers[storage]

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for workers in self._workers.values():
                workers.stop()


def _error_of(work: Work) -> Exception | None:
    try:
        work()
    except (OSError, ManagerError, CorruptObjectError, AbandonedError) as error:
        return error
    except Exception as error:
        # Whatever a manager answers, the thread goes on, and somebody learns what went wrong.
        logger.exception("the shared tier failed at something")
        return error
    return None
