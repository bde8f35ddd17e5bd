"""Tracks which chunks of a tier are only useful together.

A hit needs all of its chunks, so if one is removed, the hit is lost. A chunk that no hit uses should not take up room
in a tier.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """A node of the trie of hits: a chunk's place in all hits that are equal up to it."""

    chunk_id: int
    before: "Place | None"
    after: "dict[int, Place]" = field(default_factory=dict)
    """The next places, by chunk id."""
    is_end: bool = False
    """Whether a hit ends here."""


class Links:
    """The complete hits in a tier, as a trie of chunk ids. A chunk may belong to several hits.

    The common prefix of hits is stored only once, because a long prompt may be the prefix of thousands of hits.
    """

    def __init__(self) -> None:
        self._first: dict[int, Place] = {}
        """The first places of hits, by chunk id."""
        self._places: dict[int, set[Place]] = {}
        """All places of each chunk, by chunk id."""

    def __contains__(self, chunk_id: int) -> bool:
        """Whether a chunk belongs to any hit."""
        return chunk_id in self._places

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids of the chunks that belong to any hit."""
        return iter(self._places)

    def link(self, chunk_ids: Sequence[int]) -> None:
        """Note a hit that needs all these chunks."""
        self.end(self.go_on(None, chunk_ids))

    def go_on(self, place: Place | None, chunk_ids: Iterable[int]) -> Place | None:
        """Add chunks that a hit needs after a place, or from its beginning if ``place`` is None.

        Returns the place of the last chunk. The caller must end a hit at this place, or extend it and end it later,
        before any other call.
        """
        for chunk_id in chunk_ids:
            after = self._first if place is None else place.after
            there = after.get(chunk_id)
            if there is None:
                there = after[chunk_id] = Place(chunk_id, place)
                self._places.setdefault(chunk_id, set()).add(there)
            place = there
        return place

    def end(self, place: Place | None) -> None:
        """Note that a hit ends at a place."""
        if place is not None:
            place.is_end = True

    def unlink(self, chunk_ids: Iterable[int]) -> list[int]:
        """Forget removed chunks and their hits; returns the other chunks that no hit uses any more."""
        if not self._places:
            return []
        useless: dict[int, None] = {}
        gone = list(chunk_ids)
        for chunk_id in gone:
            while places := self._places.get(chunk_id):
                self._dissolve(next(iter(places)), useless)
        for chunk_id in gone:
            useless.pop(chunk_id, None)
        return list(useless)

    def _dissolve(self, place: Place, useless: dict[int, None]) -> None:
        """Forget all hits through a place, and add to ``useless`` those of their chunks that no other hit uses."""
        before = place.before
        self._take_out(place, useless)
        while before is not None and not before.after and not before.is_end:
            # No hit leads through this place any more.
            self._take_out(before, useless)
            before = before.before
        left = list(place.after.values())
        while left:
            each = left.pop()
            left += each.after.values()
            self._take_out(each, useless)

    def _take_out(self, place: Place, useless: dict[int, None]) -> None:
        siblings = self._first if place.before is None else place.before.after
        del siblings[place.chunk_id]
        places = self._places[place.chunk_id]
        places.discard(place)
        if not places:
            del self._places[place.chunk_id]
            useless[place.chunk_id] = None

    def clear(self) -> None:
        """Forget all hits."""
        self._first.clear()
        self._places.clear()

    def check(self) -> None:
        """Check, by going through all places, that each leads to the end of a hit, and can be found by its chunk.

        Raises:
            AssertionError: the links are inconsistent.
        """
        known: dict[int, set[Place]] = {}
        left = list(self._first.values())
        while left:
            place = left.pop()
            left += place.after.values()
            assert place.after or place.is_end, "a place leads to no hit"
            assert all(each.before is place for each in place.after.values())
            known.setdefault(place.chunk_id, set()).add(place)
        assert known == self._places
