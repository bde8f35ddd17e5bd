"""Threads that wait in place of the caller; the caller's own thread processes their results."""

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
"""Work that may raise errors of the manager, a storage or a seal."""
Steps = Iterator[str]
"""Work that waits for several services in turn. Each item is the name of the storage for which it waits next, or an
empty name for the manager. The iterator may raise their errors."""

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
        self._results = Results("shared", OSError, ManagerError, CorruptObjectError, AbandonedError)
        self._askers = Workers("tenantzone-shared-ask", settings.askers)
        self._readers = _ByStorage("tenantzone-shared-read", settings.readers)
        self._writers = _ByStorage("tenantzone-shared-write", settings.writers)

    def ask(self, tenant: str, work: Work, ended: Ended) -> None:
        """Run a query to the manager."""
        self._results.run(self._askers, tenant, work, ended)

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
        self._results.take_note()

    def stop(self) -> None:
        """Begin no new work."""
        for workers in (self._askers, self._readers, self._writers):
            workers.stop()

    def _go_on(self, by_storage: "_ByStorage", tenant: str, steps: Steps, ended: Ended) -> None:
        """Run the next step, and submit the rest to the threads of the next service."""
        storages: list[str] = []
        error = self._results.error_of(lambda: storages.extend(islice(steps, 1)))
        if storages:
            by_storage.of(storages[0]).submit(tenant, partial(self._go_on, by_storage, tenant, steps, ended))
        else:
            self._results.add(ended, error)


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
