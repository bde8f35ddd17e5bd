"""What the shared tier knows of a zone: its instance at the manager, what is on its way, what was counted."""

import time
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from tenantzone_runtime.disk.sealing import Seal
from tenantzone_runtime.zones.tier_counts import TierCounts

_MOST_STORED: Final = 4096
"""Hits that are remembered of an instance, ..."""
_STORED_SECONDS: Final = 60.0
"""... for so long: a prompt that is asked again and again would be offered again and again."""


@dataclass(eq=False, slots=True)
class Space:
    """What one zone has under one seal, at the manager an instance."""

    tenant: str
    seal: Seal
    instance: str
    """Its name."""
    groups: tuple[str, ...]
    """In which of the manager's instance groups it may be, the first choice first."""
    is_registered: bool = False
    closed_until: float = 0.0
    """No write is begun before: the manager has not let it register."""
    transfers: int = 0
    """Jobs of this engine under way, which may still write."""
    losses: int = 0
    """How often something was not there any more, or was not what it should be."""
    _removals: list[Event] = field(default_factory=list)
    """Of what the manager is being told to find no more; each is set when it was told, or could not be."""
    _stored: dict[bytes, float] = field(default_factory=dict)
    """Hits of which all was stored or there of late, by their last keys, and when on the monotonic clock."""

    def note_stored(self, last: bytes, losses: int) -> None:
        """All of a hit is there now, whose last key this is, unless there were more losses than so many by now."""
        if losses != self.losses:
            # What was on its way had to go with the rest.
            return
        self._stored.pop(last, None)
        self._stored[last] = time.monotonic()
        if len(self._stored) > _MOST_STORED:
            del self._stored[next(iter(self._stored))]

    def was_stored(self, last: bytes, seconds: float) -> bool:
        """Whether all of a hit was there so short a while ago, and nothing of the instance was lost since."""
        return last in self._stored and time.monotonic() - self._stored[last] < seconds

    def note_lacking(self, last: bytes, asked: float) -> None:
        """A hit whose last key this is was not there when it was asked for, on the monotonic clock."""
        if last in self._stored and self._stored[last] <= asked:
            del self._stored[last]

    def note_lost(self) -> None:
        """Something is not there any more, or is not what it should be."""
        self.losses += 1
        self._stored.clear()

    def begin_removal(self) -> Event:
        """The manager is being told to find something no more, until what is returned is set."""
        self._removals = [*self.removals, Event()]
        return self._removals[-1]

    @property
    def removals(self) -> list[Event]:
        """What the manager is being told just now: whoever asks it waits for that."""
        return [each for each in self._removals if not each.is_set()]

    def close(self, seconds: float) -> None:
        """Begin no write for so long."""
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
    """Seconds after which what nobody has used goes; None: never for that."""
    counts: TierCounts = field(default_factory=TierCounts)
    held_bytes: int = 0
    """By all engines, as the manager said last."""
    storing: int = 0
    """Chunks."""
    loading: int = 0
    trimmed: float = 0.0
    """When what is too old was last asked to go."""

    def was_stored(self, last: bytes) -> bool:
        """Whether all of a hit, whose last key this is, was there so short a while ago that it is not offered again."""
        return self.space.was_stored(last, min(_STORED_SECONDS, self.ttl or _STORED_SECONDS))
