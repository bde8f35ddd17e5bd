"""Threads that wait in place of the caller, and what they have done, which is noted on the caller's own thread."""

import logging
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue

from tenantzone_runtime.disk.sealing import CorruptObjectError
from tenantzone_runtime.disk.transfers import AbandonedError
from tenantzone_runtime.disk.workers import Workers
from tenantzone_runtime.shared.client import ManagerError
from tenantzone_runtime.shared.settings import SharedSettings

logger = logging.getLogger(__name__)

Work = Callable[[], object]
"""May raise what a manager, a storage or a seal does."""
Ended = Callable[[Exception | None], None]
"""Is called on the caller's thread with what became of work."""


class Threads:
    """Of one tier: some ask the manager, some read, some write. Each takes work of each tenant in turn.

    Args:
        settings: how many there are.
    """

    def __init__(self, settings: SharedSettings) -> None:
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._askers = Workers("tenantzone-shared-ask", settings.askers)
        self._readers = Workers("tenantzone-shared-read", settings.readers)
        self._writers = Workers("tenantzone-shared-write", settings.writers)

    def ask(self, tenant: str, work: Work, ended: Ended) -> None:
        """Have the manager asked."""
        self._run(self._askers, tenant, work, ended)

    def read(self, tenant: str, work: Work, ended: Ended) -> None:
        """Have a storage read."""
        self._run(self._readers, tenant, work, ended)

    def write(self, tenant: str, work: Work, ended: Ended) -> None:
        """Have a storage written, with what has to be asked for that."""
        self._run(self._writers, tenant, work, ended)

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

    def _run(self, workers: Workers, tenant: str, work: Work, ended: Ended) -> None:
        workers.submit(tenant, lambda: self._events.put(partial(ended, _error_of(work))))


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
