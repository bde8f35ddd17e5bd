"""Threads that do blocking work for the caller. The caller's own thread processes the results."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from tenantzone_runtime.disk.files.sealing import CorruptObjectError
from tenantzone_runtime.disk.transfers import AbandonedError
from tenantzone_runtime.disk.workers import Ended, Results, Workers
from tenantzone_runtime.shared.manager.client import ManagerError
from tenantzone_runtime.shared.settings import SharedSettings

Work = Callable[[], object]
"""A function that may raise errors of the manager, a storage or a seal."""
Steps = Iterator[str]
"""An iterator that does work step by step. Each item is the service for which the next step waits: the name of a
storage, or an empty name for the manager. The iterator may raise errors of the manager, a storage or a seal."""

_MOST_STORAGES: Final = 32
"""Maximum number of storages that have separate threads. All other storages share their threads."""
_OTHERS: Final = "\n"
"""The key of the shared threads, which can't be the name of a storage."""


class Threads:
    """The threads of one tier for queries, reads and writes. Tenants take turns.

    Each storage has separate threads, so that a storage that hangs does not block other storages.

    Args:
        settings: the settings with the numbers of threads.
    """

    def __init__(self, settings: SharedSettings) -> None:
        self._results = Results("shared", OSError, ManagerError, CorruptObjectError, AbandonedError)
        self._askers = Workers("tenantzone-shared-ask", settings.askers)
        self._readers = _ByStorage("tenantzone-shared-read", settings.readers)
        self._writers = _ByStorage("tenantzone-shared-write", settings.writers)

    def ask(self, tenant: str, work: Work, ended: Ended) -> None:
        """Run a call to the manager on a thread. After its end, the next :meth:`take_note` calls ``ended``."""
        self._results.run(self._askers, tenant, work, ended)

    def read(self, tenant: str, steps: Steps, ended: Ended) -> None:
        """Run reads on the storages' threads. After their end, the next :meth:`take_note` calls ``ended``."""
        self._go_on(self._readers, tenant, steps, ended)

    def write(self, tenant: str, steps: Steps, ended: Ended) -> None:
        """Run writes and their calls to the manager on threads. After their end, :meth:`take_note` calls ``ended``."""
        self._go_on(self._writers, tenant, steps, ended)

    def may_read_at_once(self, storage: str) -> bool:
        """Returns whether a thread is idle and could begin to read from a storage now. Thread-safe."""
        return self._readers.of(storage).has_idle

    def may_write_at_once(self, storage: str) -> bool:
        """Returns whether a thread is idle and could begin to write to a storage now. Thread-safe."""
        return self._writers.of(storage).has_idle

    def take_note(self) -> None:
        """Call the ``ended`` callbacks of all finished work, on the calling thread."""
        self._results.take_note()

    def stop(self) -> None:
        """Drop queued work, and begin no new work."""
        for workers in (self._askers, self._readers, self._writers):
            workers.stop()

    def _go_on(self, by_storage: "_ByStorage", tenant: str, steps: Steps, ended: Ended) -> None:
        """Run the next step, and queue the remaining steps for the threads of the storage that the step returned."""
        storages: list[str] = []
        error = self._results.error_of(lambda: storages.extend(islice(steps, 1)))
        if storages:
            by_storage.of(storages[0]).submit(tenant, partial(self._go_on, by_storage, tenant, steps, ended))
        else:
            self._results.add(ended, error)


class _ByStorage:
    """Separate threads for each storage, created at the storage's first use."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._workers: dict[str, Workers] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def of(self, storage: str) -> Workers:
        """Returns the threads for one storage, or for the manager if the name is empty. Thread-safe."""
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
