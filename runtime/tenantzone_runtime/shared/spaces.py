"""What the shared tier knows about each zone: the zone's instance in the manager, its transfers, and its counters."""

import time
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from tenantzone_runtime.disk.files.sealing import Seal
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts

_MOST_STORED: Final = 4096
"""Maximum number of stored hits that are remembered for an instance."""
_STORED_SECONDS: Final = 60.0
"""Seconds for which a stored hit is remembered. During this time, a repeated prompt is not stored again."""


@dataclass(eq=False, slots=True)
class Space:
    """The chunks of one zone that are sealed with one seal. In the manager, they are one instance."""

    tenant: str
    seal: Seal
    instance: str
    """Name of the instance in the manager."""
    groups: tuple[str, ...]
    """The manager's instance groups to which the instance may belong, in order of preference."""
    is_registered: bool = False
    """Whether this engine has registered the instance in the manager."""
    closed_until: float = 0.0
    """Monotonic time before which no write begins. It is set when the manager refuses to register the instance."""
    transfers: int = 0
    """Number of this engine's writes in progress."""
    losses: int = 0
    """Number of times that chunks were found missing or corrupt, or that the zone lost its permission to store."""
    _removals: list[Event] = field(default_factory=list)
    """Reports of removed chunks to the manager. Each event is set once its report was sent, or has failed."""
    _stored: dict[bytes, float] = field(default_factory=dict)
    """The monotonic time at which a hit was completely stored, by the hit's last key."""

    def note_stored(self, last: bytes, losses: int) -> None:
        """Record that the hit with this last key is completely stored.

        Args:
            last: the hit's last key.
            losses: value of ``losses`` before the store. If it has changed, the record is not made.
        """
        if losses != self.losses:
            # Chunks of this hit may have been lost since.
            return
        self._stored.pop(last, None)
        self._stored[last] = time.monotonic()
        if len(self._stored) > _MOST_STORED:
            del self._stored[next(iter(self._stored))]

    def was_stored(self, last: bytes, seconds: float) -> bool:
        """Returns whether the hit was completely stored within the last ``seconds``, and no chunks were lost since."""
        return last in self._stored and time.monotonic() - self._stored[last] < seconds

    def note_lacking(self, last: bytes, asked: float) -> None:
        """Record that the manager did not have the hit with this last key at the monotonic time ``asked``."""
        if last in self._stored and self._stored[last] <= asked:
            del self._stored[last]

    def note_lost(self) -> None:
        """Record that chunks are lost, so that no hit counts as completely stored any more."""
        self.losses += 1
        self._stored.clear()

    def begin_removal(self) -> Event:
        """Begin to report removed chunks to the manager. The caller must set the returned event after the report."""
        self._removals = [*self.removals, Event()]
        return self._removals[-1]

    @property
    def removals(self) -> list[Event]:
        """The events of reports to the manager that are not sent yet. Queries wait for these events."""
        return [each for each in self._removals if not each.is_set()]

    def close(self, seconds: float) -> None:
        """Prevent new writes for ``seconds``."""
        self.closed_until = time.monotonic() + seconds


@dataclass(eq=False, slots=True)
class SharedZone:
    """The shared tier's state of one zone of the current config."""

    tenant: str
    purge: str
    space: Space
    no_store: bool
    """Whether the zone may not store chunks in tiers."""
    ttl: float | None
    """Seconds after which the zone's unused chunks are removed; None for never."""
    counts: TierCounts = field(default_factory=TierCounts)
    held_bytes: int = 0
    """Number of bytes that all engines have stored for the zone, according to the manager's last answer."""
    storing: int = 0
    """Number of the zone's chunks that are being stored."""
    loading: int = 0
    """Number of the zone's chunks that are being loaded."""
    trimmed: float = 0.0
    """Monotonic time of the last request to remove expired chunks."""

    def was_stored(self, last: bytes) -> bool:
        """Returns whether the hit with this last key was completely stored recently, so need not be stored again."""
        return self.space.was_stored(last, min(_STORED_SECONDS, self.ttl or _STORED_SECONDS))
