"""The search cache: recently read records, so that frequent lookups need not read the store."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

_REMEMBERED: Final = 16_384
"""The most invalidations that a read in progress can be checked against."""


class Entry:
    """A decoded record, and the answers rendered from it."""

    __slots__ = ("read_at", "rendered", "value")

    def __init__(self, value: Any, read_at: float) -> None:
        self.value = value
        self.read_at = read_at
        self.rendered: dict[Any, Any] = {}
        """Rendered answers, kept here by the reader for reuse."""


class SearchCache:
    """A cache that evicts the least recently used entries first.

    If other processes change the store, an entry is dropped when they publish a change, and is used for at most
    ``max_age_seconds`` in case that message is lost.

    Args:
        capacity: maximum number of entries.
        max_age_seconds: maximum age of an entry; None: only this process changes the store.
        clock: returns monotonic seconds.
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
        """Returns the entries for keys, None for missing ones; ``until_missing``: only up to the first missing one."""
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
        """Returns a token for :meth:`put`: records invalidated from now on may be read before their change."""
        return self._invalidations

    def put(self, space: str, values: Sequence[tuple[bytes, Any]], token: int) -> list[Entry]:
        """Cache records read since the token was given, except invalidated ones; returns entries for all of them."""
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
        """Drop changed records; without keys, all records."""
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
