"""Which chunks of a tier are of use together only.

Without one of its chunks a hit is none, and what is of use for no hit should not take up a tier's room.
"""

from collections.abc import Iterable, Iterator, Sequence


class Links:
    """The hits that a tier has all chunks of, by the chunks' ids; a chunk may be of several."""

    def __init__(self) -> None:
        self._hits: dict[int, tuple[int, ...]] = {}
        """By the last chunk of each."""
        self._hits_with: dict[int, set[int]] = {}
        """By chunk, the last chunks of the hits that it is of."""

    def __contains__(self, chunk_id: int) -> bool:
        """Whether a chunk is of some hit."""
        return chunk_id in self._hits_with

    def __iter__(self) -> Iterator[int]:
        """The chunks that are of some hit."""
        return iter(self._hits_with)

    def link(self, chunk_ids: Sequence[int]) -> None:
        """Note a hit.

        Args:
            chunk_ids: all that it needs. The last one is no other hit's last.
        """
        end = chunk_ids[-1]
        if end in self._hits:
            # All of it is there still, or it would be noted no more.
            return
        self._hits[end] = tuple(chunk_ids)
        for chunk_id in chunk_ids:
            self._hits_with.setdefault(chunk_id, set()).add(end)

    def unlink(self, chunk_ids: Iterable[int]) -> list[int]:
        """Forget chunks that are gone, and the hits that they were of; returns what is of use for no hit since then."""
        useless: dict[int, None] = {}
        gone = list(chunk_ids)
        for chunk_id in gone:
            for end in self._hits_with.pop(chunk_id, ()):
                useless.update(dict.fromkeys(self._dissolve(end)))
        for chunk_id in gone:
            useless.pop(chunk_id, None)
        return list(useless)

    def _dissolve(self, end: int) -> list[int]:
        """Forget a hit; returns its chunks that are of no other."""
        useless = []
        for chunk_id in self._hits.pop(end):
            ends = self._hits_with.get(chunk_id)
            if ends is None:
                # It is the one that is gone.
                continue
            ends.discard(end)
            if not ends:
                del self._hits_with[chunk_id]
                useless.append(chunk_id)
        return useless

    def clear(self) -> None:
        """Forget all hits."""
        self._hits.clear()
        self._hits_with.clear()

    def check(self) -> None:
        """Check the slow way that hits and chunks name each other.

        Raises:
            AssertionError: they do not.
        """
        named: dict[int, set[int]] = {}
        for end, chunk_ids in self._hits.items():
            assert chunk_ids[-1] == end
            for chunk_id in chunk_ids:
                named.setdefault(chunk_id, set()).add(end)
        assert named == self._hits_with
