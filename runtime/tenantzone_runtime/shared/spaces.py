"""The shared tier's state of a zone: its instance at the manager, its transfers, its counters."""

import time
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from tenantzone_runtime.disk.sealing import Seal
from tenantzone_runtime.zones.tier_counts import TierCounts

_MOST_STORED: Final = 4096
"""The maximum number of stored hits remembered for an instance, ..."""
_STORED_SECONDS: Final = 60.0
"""... for this many seconds, so that a repeated prompt is not offered again and again."""


@dataclass(eq=False, slots=True)
class Space:
    """The data of one zone under one seal: an instance at the manager."""

    tenant: str
    seal: Seal
    instance: str
    """The name of the instance."""
    groups: tuple[str, ...]
    """The manager's instance groups that it may belong to, in order of preference."""
    is_registered: bool = False
    closed_until: float = 0.0
    """The time before which no write begins, because the manager has refused the registration."""
    transfers: int = 0
    """Jobs of this engine in progress, which may still write."""
    losses: int = 0
    """How often a chunk was missing or wrong."""
    _removals: list[Event] = field(default_factory=list)
    """Removals that are being sent to the manager; each event is set once it was sent or has failed."""
    _stored: dict[bytes, float] = field(default_factory=dict)
    """The last keys of hits that were completely stored recently, with the monotonic time."""

    def note_stored(self, last: bytes, losses: int) -> None:
        """Record that the hit with this last key is complete, unless there were more losses than ``losses`` since."""
        if losses != self.losses:
            # The chunks that were being stored had to be removed with the rest.
            return
        self._stored.pop(last, None)
        self._stored[last] = time.monotonic()
        if len(self._stored) > _MOST_STORED:
            del self._stored[next(iter(self._stored))]

    def was_stored(self, last: bytes, seconds: float) -> bool:
        """Returns whether a hit was complete within the last ``seconds``, and the instance has lost nothing since."""
        return last in self._stored and time.monotonic() - self._stored[last] < seconds

    def note_lacking(self, last: bytes, asked: float) -> None:
        """Record that the hit with this last key was missing when it was queried, at a monotonic time."""
        if last in self._stored and self._stored[last] <= asked:
            del self._stored[last]

    def note_lost(self) -> None:
        """Record that a chunk is missing or wrong."""
        self.losses += 1
        self._stored.clear()

    def begin_removal(self) -> Event:
        """Begin to report a removal to the manager. Returns the event to set when that is done."""
        self._removals = [*self.removals, Event()]
        return self._removals[-1]

    @property
    def removals(self) -> list[Event]:
        """The removals being reported to the manager: queries wait for them."""
        return [each for each in self._removals if not each.is_set()]

    def close(self, seconds: float) -> None:
        """Begin no write for this many seconds."""
        self.closed_until = time.monotonic() + seconds


@dataclass(eq=False, slots=True)
class SharedZone:
    """One zone of the config in force."""

    tenant: str
    purge: str
    space: Space
    no_store: bool
    """Whether it keeps nothing below its blocks."""
    ttl: float | None
    """Seconds after which unused chunks are removed; None for never."""
    counts: TierCounts = field(default_factory=TierCounts)
    held_bytes: int = 0
    """Bytes held by all engines, according to the manager's last answer."""
    storing: int = 0
    """Chunks that are being stored."""
    loading: int = 0
    trimmed: float = 0.0
    """When the removal of expired chunks was last requested."""

    def was_stored(self, last: bytes) -> bool:
        """Returns whether the hit with this last key was complete so recently that it is not offered again."""
        return self.space.was_stored(last, min(_STORED_SECONDS, self.ttl or _STORED_SECONDS))
