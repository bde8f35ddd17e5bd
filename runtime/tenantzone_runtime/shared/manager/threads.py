"""Threads that wait in place of the caller; the caller's own thread processes their results."""

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Final

from tenantzone_runtime.disk.files.sealing import CorruptObjectError
from tenantzone_runtime.disk.transfers import AbandonedError
from tenantzone_runtime.disk.workers import Workers
from tenantzone_runtime.shared.manager.client import ManagerError
from tenantzone_runtime.shared.settings import SharedSettings

logger = logging.getLogger(__name__)

Work = Callable[[], object]
"""Work that may raise errors of the manager, a storage or a seal."""
Steps = Iterator[str]
"""Work that waits for several services in turn. Each item is the name of the storage for which it waits next, or an
empty name for the manager. The iterator may raise their errors."""
Ended = Callable[[Exception | None], None]
"""Called on the caller's thread with the error of the work, or None."""

_MOST_STORAGES: Final = 32
"""Maximum number of storages with threads of their own. All other storages share threads."""
_OTHERS: Final = "\n"
"""A key that is not the name of a storage."""


class Threads:
    """The threads of one tier for queries, reads and writes, with round-robin scheduling of tenants.

    Each storage has its own threads, so that a hanging storage does not block the others.

    Args:
        settings: settings with the numbers of threads.
    """

    def __init__(self, settings: SharedSettings) -> None:
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._askers = Workers("tenantzone-shared-ask", settings.askers)
        self._readers = _ByStorage("tenantzone-shared-read", settings.readers)
        self._writers = _ByStorage("tenantzone-shared-write", settings.writers)

    def ask(self, tenant: str, work: Work, ended: Ended) -> None:
        """Run a query to the manager."""
        self._askers.submit(tenant, lambda: self._events.put(partial(ended, _error_of(work))))

    def read(self, tenant: str, steps: Steps, ended: Ended) -> None:
        """Run reads of storages."""
        self._go_on(self._readers, tenant, steps, ended)

    def write(self, tenant: str, steps: Steps, ended: Ended) -> None:
        """Run writes to storages, with the calls to the manager that they need."""
        self._go_on(self._writers, tenant, steps, ended)

    def may_read_at_once(self, storage: str) -> bool:
        """Returns whether a thread could begin to read a storage immediately. Thread-safe, like the next method."""
        return self._readers.of(storage).has_idle

    def may_write_at_once(self, storage: str) -> bool:
        """Returns whether a thread could begin to write to a storage immediately."""
        return self._writers.of(storage).has_idle

    def take_note(self) -> None:
        """Call the callbacks of finished work."""
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            event()

    def stop(self) -> None:
        """Begin no new work."""
        for workers in (self._askers, self._readers, self._writers):
            workers.stop()

    def _go_on(self, by_storage: "_ByStorage", tenant: str, steps: Steps, ended: Ended) -> None:
        """Run the next step, and submit the rest to the threads of the next service."""
        storages: list[str] = []
        error = _error_of(lambda: storages.extend(islice(steps, 1)))
        if storages:
            by_storage.of(storages[0]).submit(tenant, partial(self._go_on, by_storage, tenant, steps, ended))
        else:
            self._events.put(partial(ended, error))


class _ByStorage:
    """Threads for each storage, created at its first use."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._workers: dict[str, Workers] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def of(self, storage: str) -> Workers:
        """Returns the threads of one storage. Thread-safe."""
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
        # Catch every exception, because no answer of a manager may end the thread.
        logger.exception("Unexpected error in a thread of the shared tier")
        return error
    return None
