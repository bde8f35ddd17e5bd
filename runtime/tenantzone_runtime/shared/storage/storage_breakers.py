"""Circuit breakers, one for each storage, for either reads or writes."""

import logging
import threading
import time
from typing import Final, Protocol

from tenantzone_runtime.disk.breaker import Breaker

logger = logging.getLogger(__name__)


_DONE: Final = {"reads": "read", "writes": "written"}


class Moving(Protocol):
    """A transfer from or to a storage."""

    storage: str
    """Name of the storage that the transfer used last."""
    began: float
    """Monotonic time at which the transfer began to use the storage; infinity while the transfer uses no storage."""


class StorageBreakers:
    """Stops the use of storages that fail or hang. After a pause, each storage is probed with one load or store.

    Args:
        way: the direction, ``reads`` or ``writes``.
        patience: seconds for one chunk after which a storage is considered too slow.
    """

    def __init__(self, way: str, patience: float) -> None:
        self._way, self._patience = way, patience
        self._given_up: set[Moving] = set()
        """Transfers that were given up, but on which threads may still be working."""
        self._breakers: dict[str, Breaker] = {}
        """Circuit breakers by the name of the storage."""
        self._lock = threading.Lock()

    def of(self, storage: str) -> Breaker:
        """Returns the circuit breaker of one storage."""
        return self._breakers.setdefault(storage, Breaker(service=self._about(storage)))

    def allows(self, storage: str) -> bool:
        """Returns whether the caller may transfer a chunk now, as a probe if the storage fails. Thread-safe."""
        with self._lock:
            return self.of(storage).allows(time.monotonic())

    def note(self, storage: str, error: str, *, at_once: bool = False) -> None:
        """Record a transfer; ``error`` is empty after success. If ``at_once``, a single failure opens the breaker."""
        with self._lock:
            breaker = self.of(storage)
            if not error:
                breaker.succeeded()
                return
            if not breaker.is_open:
                logger.warning("%s fail: %s", self._about(storage), error)
            breaker.failed(time.monotonic(), error, at_once=at_once)

    def gave_up(self, moving: Moving, *, is_late: bool) -> None:
        """Record that a transfer was given up, and avoid its storage if the storage is too slow.

        Args:
            moving: the transfer.
            is_late: whether the transfer was late. If it was, and has used the storage for at least half of
                ``patience``, the storage counts as too slow at once. In all other cases, :meth:`watch` decides later.
        """
        if is_late and time.monotonic() - moving.began >= self._patience / 2:
            self._is_slow(moving)
        else:
            self._given_up.add(moving)

    def watch(self) -> None:
        """Avoid each storage that has blocked the thread of a given-up transfer for at least ``patience``."""
        now = time.monotonic()
        slow = {moving for moving in self._given_up if now - moving.began >= self._patience}
        self._given_up -= slow
        for moving in slow:
            self._is_slow(moving)

    def ended(self, moving: Moving) -> None:
        """Record that no thread is working on the transfer any more."""
        self._given_up.discard(moving)

    def _is_slow(self, moving: Moving) -> None:
        error = f"a chunk was not {_DONE[self._way]} within {self._patience:g} s"
        self.note(moving.storage, error, at_once=True)

    def _about(self, storage: str) -> str:
        return f"The shared tier: {self._way} of storage {storage}"

    @property
    def problems(self) -> list[str]:
        """One message for each storage that fails. Thread-safe."""
        failing = {name: each for name, each in list(self._breakers.items()) if each.is_open}
        return [f"{self._way} of storage {name} fail: {each.error}" for name, each in failing.items()]
