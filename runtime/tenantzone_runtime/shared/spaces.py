"""The shared tier's state of a zone: its instance in the manager, its transfers, and its counters."""

import time
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from tenantzone_runtime.disk.files.sealing import Seal
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts

_MOST_STORED: Final = 4096
"""Maximum number of stored hits that are remembered for an instance."""
_STORED_SECONDS: Final = 60.0
"""Seconds for which a stored hit is remembered, so that a repeated prompt is not offered again and again."""


@dataclass(eq=False, slots=True)
class Space:
    """The data of one zone under one seal, which is an instance in the manager."""

    tenant: str
    seal: Seal
    instance: str
    """Name of the instance."""
    groups: tuple[str, ...]
    """The manager's instance groups to which the instance may belong, in order of preference."""
    is_registered: bool = False
    closed_until: float = 0.0
    """Time before which no write begins, because the manager has refused the registration."""
    transfers: int = 0
    """Number of this engine's writes in progress."""
    losses: int = 0
    """Number of times that a chunk was found missing or corrupt."""
    _removals: list[Event] = field(default_factory=list)
    """Removals that are being sent to the manager. Each event is set once its removal was sent or has failed."""
    _stored: dict[bytes, float] = field(default_factory=dict)
    """For hits that were recently stored completely, the last key, with the monotonic time."""

    def note_stored(self, last: bytes, losses: int) -> None:
        """Record that the hit with this last key is complete, unless chunks were lost since there were ``losses``."""
        if losses != self.losses:
            # The lost chunks may belong to this hit.
            return
        self._stored.pop(last, None)
        self._stored[last] = time.monotonic()
        if len(self._stored) > _MOST_STORED:
            del self._stored[next(iter(self._stored))]

    def was_stored(self, last: bytes, seconds: float) -> bool:
        """Returns whether a hit was complete within the last ``seconds``, and no chunks were lost since."""
        return last in self._stored and time.monotonic() - self._stored[last] < seconds

    def note_lacking(self, last: bytes, asked: float) -> None:
        """Record that the hit with this last key was missing in a query at the monotonic time ``asked``."""
        if last in self._stored and self._stored[last] <= asked:
            del self._stored[last]

    def note_lost(self) -> None:
        """Record that a chunk is missing or corrupt."""
        self.losses += 1
        self._stored.clear()

    def begin_removal(self) -> Event:
        """Begin to report a removal to the manager. Returns the event to set when it is reported."""
        self._removals = [*self.removals, Event()]
        return self._removals[-1]

    @property
    def removals(self) -> list[Event]:
        """Removals that are being reported to the manager. Queries wait for them."""
        return [each for each in self._removals if not each.is_set()]

    def close(self, seconds: float) -> None:
        """Begin no writes for ``seconds``."""
        self.closed_until = time.monotonic() + seconds


@dataclass(eq=False, slots=True)
class SharedZone:
    """One zone of the config in force."""

    tenant: str
    purge: str
    space: Space
    no_store: bool
    """Whether the zone may not store chunks in tiers."""
    ttl: float | None
    """Seconds after which unused chunks are removed; None for never."""
    counts: TierCounts = field(default_factory=TierCounts)
    held_bytes: int = 0
    """Number of bytes that all engines have stored for the zone, according to the manager's last answer."""
    storing: int = 0
    """Number of chunks that are being stored."""
    loading: int = 0
    trimmed: float = 0.0
    """Time at which the removal of expired chunks was last requested."""

    def was_stored(self, last: bytes) -> bool:
        """Returns whether the hit with this last key was complete recently, so that it need not be offered again."""
        return self.space.was_stored(last, min(_STORED_SECONDS, self.ttl or _STORED_SECONDS))
