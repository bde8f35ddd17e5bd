"""A circuit breaker for each storage, for one way."""

import logging
import threading
import time

from tenantzone_runtime.disk.breaker import Breaker

logger = logging.getLogger(__name__)


class StorageBreakers:
    """Storages that fail are left alone for a while, and then tried with one chunk.

    Args:
        way: what is done with them, for people: ``reads``.
    """

    def __init__(self, way: str) -> None:
        self._way = way
        self._breakers: dict[str, Breaker] = {}
        """By the storage's name."""
        self._lock = threading.Lock()

    def of(self, storage: str) -> Breaker:
        """The breaker of one storage."""
        return self._breakers.setdefault(storage, Breaker())

    def allows(self, storage: str) -> bool:
        """Whether a chunk may go now; one that fails is tried by asking. From any thread."""
        with self._lock:
            return self.of(storage).allows(time.monotonic())

    def note(self, storage: str, error: str, *, at_once: bool = False) -> None:
        """Note what became of a chunk; an empty error: it was moved; ``at_once``: it held somebody up."""
        with self._lock:
            breaker = self.of(storage)
            if not error:
                breaker.succeeded()
                return
            if not breaker.is_open:
                logger.warning("The shared tier: %s of storage %s fail: %s", self._way, storage, error)
            breaker.failed(time.monotonic(), error, at_once=at_once)

    @property
    def problems(self) -> list[str]:
        """What fails now, for people. Read from any thread."""
        failing = {name: each for name, each in list(self._breakers.items()) if each.is_open}
        return [f"{self._way} of storage {name} fail: {each.error}" for name, each in failing.items()]
