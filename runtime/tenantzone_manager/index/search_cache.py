"""The search cache: an LRU cache of records, so that frequent lookups need not read the store."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

_REMEMBERED: Final = 16_384
"""Maximum number of remembered invalidations. If more occur during a read, the records of this read are not cached."""


class Entry:
    """A decoded record, and the answers that were rendered from it."""

    __slots__ = ("read_at", "rendered", "value")

    def __init__(self, value: Any, read_at: float) -> None:
        self.value = value
        self.read_at = read_at
        self.rendered: dict[Any, Any] = {}
        """Answers that the reader has rendered from this record, to be reused."""


class SearchCache:
    """An LRU cache of records.

    An entry is dropped when another process publishes a change of the record. Such a message may be lost, so an entry
    is also dropped when it is older than ``max_age_seconds``.

    Args:
        capacity: maximum number of entries.
        max_age_seconds: maximum age of an entry, or None if only this process changes the store.
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
        """Returns the cached entries for keys, and None for keys that are not cached.

        If ``until_missing`` is true, the result ends before the first key that is not cached.
        """
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
        """Returns a token to pass to :meth:`put` after the read, to detect records that were invalidated meanwhile."""
        return self._invalidations

    def put(self, space: str, values: Sequence[tuple[bytes, Any]], token: int) -> list[Entry]:
        """Cache records that were read, except those invalidated since the token was given.

        Returns:
            Entries for all of the records, including those that are not cached.
        """
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
        """Drop the records with these keys from the cache, or all records of all spaces if ``keys`` is empty."""
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
