"""Tracks which chunks of a tier are only useful together.

A hit is lost with any of its chunks, and a chunk that no hit uses should not take up room in a tier.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """A chunk's place in the hits that share their beginning up to it."""

    chunk_id: int
    before: "Place | None"
    after: "dict[int, Place]" = field(default_factory=dict)
    """By chunk."""
    is_end: bool = False
    """Whether a hit ends here."""


class Links:
    """The hits whose chunks a tier has completely, by the chunks' ids; a chunk may belong to several.

    The common beginning of hits is stored once: a long prompt may be the beginning of thousands.
    """

    def __init__(self) -> None:
        self._first: dict[int, Place] = {}
        """By the first chunk of hits."""
        self._places: dict[int, set[Place]] = {}
        """By chunk."""

    def __contains__(self, chunk_id: int) -> bool:
        """Whether a chunk belongs to some hit."""
        return chunk_id in self._places

    def __iter__(self) -> Iterator[int]:
        """The chunks that belong to some hit."""
        return iter(self._places)

    def link(self, chunk_ids: Sequence[int]) -> None:
        """Note a hit that needs all these chunks."""
        self.end(self.go_on(None, chunk_ids))

    def go_on(self, place: Place | None, chunk_ids: Iterable[int]) -> Place | None:
        """Add chunks that a hit needs after a place; None: from its beginning. Returns the last one's place.

        A hit must end there, or later, before any other call.
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
        """Forget removed chunks and their hits; returns chunks that no hit uses any longer."""
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
        """Forget the hits through a place, and collect its chunks that no other hit uses."""
        before = place.before
        self._take_out(place, useless)
        while before is not None and not before.after and not before.is_end:
            # It leads to no hit any more.
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
        """Check the slow way that all places lead to the end of a hit, and can be found by their chunks.

        Raises:
            AssertionError: the links are wrong.
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
