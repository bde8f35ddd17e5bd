"""A circuit breaker for each storage, for one way."""

import logging
import threading
import time
from typing import Final, Protocol

from tenantzone_runtime.disk.breaker import Breaker

logger = logging.getLogger(__name__)


_DONE: Final = {"reads": "read", "writes": "written"}


class Moving(Protocol):
    """What is on its way from or to a storage."""

    storage: str
    """That was asked last."""
    began: float
    """When it was, on the monotonic clock; infinity: it is not being asked."""


class StorageBreakers:
    """Storages that fail or hang are left alone for a while, and then tried with one load or store.

    Args:
        way: what is done with them, for people: ``reads`` or ``writes``.
        patience: seconds after which a storage holds somebody up.
    """

    def __init__(self, way: str, patience: float) -> None:
        self._way, self._patience = way, patience
        self._given_up: set[Moving] = set()
        """Which threads may still be at."""
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

    def gave_up(self, moving: Moving, *, is_late: bool) -> None:
        """Nobody waits for it any more: what held it up is left alone, now or when that is plain.

        Args:
            moving: what was given up.
            is_late: whether for that. What was asked for just now may have waited for something else.
        """
        if is_late and time.monotonic() - moving.began >= self._patience / 2:
            self._is_slow(moving)
        else:
            self._given_up.add(moving)

    def watch(self) -> None:
        """Leave alone storages that hold a thread up although nobody waits for that any more."""
        now = time.monotonic()
        slow = {moving for moving in self._given_up if now - moving.began >= self._patience}
        self._given_up -= slow
        for moving in slow:
            self._is_slow(moving)

    def ended(self, moving: Moving) -> None:
        """No thread is at it any more."""
        self._given_up.discard(moving)

    def _is_slow(self, moving: Moving) -> None:
        error = f"a chunk was not {_DONE[self._way]} within {self._patience:g} s"
        self.note(moving.storage, error, at_once=True)

    @property
    def problems(self) -> list[str]:
        """What fails now, for people. Read from any thread."""
        failing = {name: each for name, each in list(self._breakers.items()) if each.is_open}
        return [f"{self._way} of storage {name} fail: {each.error}" for name, each in failing.items()]
