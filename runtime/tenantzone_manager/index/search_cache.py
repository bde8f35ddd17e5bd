"""The search cache: records as they were read last, so that what is asked for often costs no look into the store."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

_REMEMBERED: Final = 16_384
"""Invalidations that a read in flight can be checked against."""


class Entry:
    """A record, decoded, and what answers are made of it."""

    __slots__ = ("read_at", "rendered", "value")

    def __init__(self, value: Any, read_at: float) -> None:
        self.value = value
        self.read_at = read_at
        self.rendered: dict[Any, Any] = {}
        """Whoever makes answers keeps here what is the same in each of them."""


class SearchCache:
    """Least recently used entries go first.

    Where others change the store, too, an entry is dropped when they say so, and is never believed for longer than
    ``max_age_seconds`` if the word gets lost.

    Args:
        capacity: entries.
        max_age_seconds: None: only this process changes the store.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, capacity: int, max_age_seconds: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity = capacity
        self._max_age = max_age_seconds
        self._clock = clock
        self._entries: OrderedDict[tuple[str, bytes], Entry] = OrderedDict()
        self._invalidated: deque[tuple[str, bytes]] = deque(maxlen=_REMEMBERED)
        self._invalidations = 0
        self._emptied_at = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, space: str, keys: Sequence[bytes], until_missing: bool = False) -> list[Entry | None]:
        """The entries for keys; None where there is none. ``until_missing``: no further than the first of these."""
        oldest = self._clock() - self._max_age if self._max_age is not None else float("-inf")
        entries, found = self._entries, list[Entry | None]()
        for key in keys:
            at = (space, key)
            entry = entries.get(at)
            if entry is None or entry.read_at < oldest:
                entry = None
                if until_missing:
                    break
            else:
                entries.move_to_end(at)
            found.append(entry)
        hits = len(found) - found.count(None)
        self.hits += hits
        self.misses += len(found) - hits
        return found

    def begin_read(self) -> int:
        """A token for :meth:`put`: what is invalidated from now on was perhaps read before it was changed."""
        return self._invalidations

    def put(self, space: str, values: Sequence[tuple[bytes, Any]], token: int) -> list[Entry]:
        """Keep what was read since the token was given, but for what has been invalidated meanwhile."""
        now = self._clock()
        made = [Entry(value, now) for _, value in values]
        since = self._invalidations - token
        if self._emptied_at > token or since > _REMEMBERED:
            return made
        stale = set(list(self._invalidated)[-since:]) if since else ()
        for (key, _), entry in zip(values, made, strict=True):
            if (space, key) not in stale:
                self._entries[space, key] = entry
                self._entries.move_to_end((space, key))
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
        return made

    def invalidate(self, space: str, keys: Sequence[bytes]) -> None:
        """Drop what was changed; without keys, everything."""
        if not keys:
            self._entries.clear()
            self._invalidations += 1
            self._invalidated.append(("", b""))
            self._emptied_at = self._invalidations
            return
        for key in keys:
            self._entries.pop((space, key), None)
            self._invalidated.append((space, key))
        self._invalidations += len(keys)
