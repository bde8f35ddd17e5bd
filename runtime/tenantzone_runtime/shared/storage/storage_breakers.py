"""Circuit breakers of all storages, for one direction."""

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
    """The storage that was used last."""
    began: float
    """Monotonic time at which the use of the storage began; infinity if it is not in use."""


class StorageBreakers:
    """Stops using storages that fail or hang for a while, and then probes each with one load or store.

    Args:
        way: the direction, for messages: ``reads`` or ``writes``.
        patience: seconds after which a storage is considered too slow.
    """

    def __init__(self, way: str, patience: float) -> None:
        self._way, self._patience = way, patience
        self._given_up: set[Moving] = set()
        """Transfers that were given up, and on which threads may still be working."""
        self._breakers: dict[str, Breaker] = {}
        """Breakers by storage name."""
        self._lock = threading.Lock()

    def of(self, storage: str) -> Breaker:
        """Returns the breaker of one storage."""
        return self._breakers.setdefault(storage, Breaker())

    def allows(self, storage: str) -> bool:
        """Returns whether a chunk may be transferred now; for a failing storage, True begins a probe. Thread-safe."""
        with self._lock:
            return self.of(storage).allows(time.monotonic())

    def note(self, storage: str, error: str, *, at_once: bool = False) -> None:
        """Record the outcome of a chunk; an empty ``error`` means success. ``at_once`` opens the breaker at once."""
        with self._lock:
            breaker = self.of(storage)
            if not error:
                breaker.succeeded()
                return
            if not breaker.is_open:
                logger.warning("The shared tier: %s of storage %s fail: %s", self._way, storage, error)
            breaker.failed(time.monotonic(), error, at_once=at_once)

    def gave_up(self, moving: Moving, *, is_late: bool) -> None:
        """Record that a transfer was given up. Its storage is avoided from now on, or once it is certainly too slow.

        Args:
            moving: the transfer.
            is_late: whether the transfer was given up because it was late. The storage is only to blame if it was in
                use for long enough.
        """
        if is_late and time.monotonic() - moving.began >= self._patience / 2:
            self._is_slow(moving)
        else:
            self._given_up.add(moving)

    def watch(self) -> None:
        """Avoid storages that still block a thread with a given-up transfer for too long."""
        now = time.monotonic()
        slow = {moving for moving in self._given_up if now - moving.began >= self._patience}
        self._given_up -= slow
        for moving in slow:
            self._is_slow(moving)

    def ended(self, moving: Moving) -> None:
        """Record that no thread works on the transfer any more."""
        self._given_up.discard(moving)

    def _is_slow(self, moving: Moving) -> None:
        error = f"a chunk was not {_DONE[self._way]} within {self._patience:g} s"
        self.note(moving.storage, error, at_once=True)

    @property
    def problems(self) -> list[str]:
        """Messages about the failing storages. Thread-safe."""
        failing = {name: each for name, each in list(self._breakers.items()) if each.is_open}
        return [f"{self._way} of storage {name} fail: {each.error}" for name, each in failing.items()]
