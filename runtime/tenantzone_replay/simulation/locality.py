"""Measures how often a load uses each block, and the time between two uses, independently of any cache.

Only blocks whose hash is below a bound are sampled, and the bound is lowered whenever there are too many samples. So
memory is bounded for any load, and every use of a sampled block is counted. This is the method of SHARDS (Waldspurger
et al., *Efficient MRC Construction with SHARDS*, FAST'15).
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tenantzone_replay.simulation.distribution import Distribution
from tenantzone_replay.traces.load import Asked, content_id

_FOLLOWED: Final = 50_000
"""Maximum number of sampled blocks."""
_SPACE: Final = 2**32
_MIXING: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio. Multiplication by this number maps neighbouring ids to distant hashes."""


@dataclass(slots=True)
class _Block:
    place: int
    """Hash of the block."""
    last: float
    uses: int = 1


class Locality:
    """Counts the uses of the blocks of a load. Blocks of different tenants are different, even with equal content.

    Args:
        followed: the maximum number of sampled blocks.
    """

    def __init__(self, followed: int = _FOLLOWED) -> None:
        self.reuse = Distribution()
        """Distribution of the time from one use of a block to the next, in seconds."""
        self._followed = followed
        self._bound = _SPACE
        self._blocks: dict[tuple[str, int], _Block] = {}
        self._highest: list[tuple[int, tuple[str, int]]] = []
        """Heap of sampled blocks, with the highest hash first. The block with the highest hash is dropped first."""

    @property
    def sampled(self) -> float:
        """Fraction of all blocks that are sampled."""
        return self._bound / _SPACE

    @property
    def once(self) -> float:
        """Fraction of the sampled blocks that are used only once."""
        return sum(block.uses == 1 for block in self._blocks.values()) / max(1, len(self._blocks))

    def add(self, asked: Asked) -> None:
        """Count the blocks of a request. Requests must be added in the order of arrival."""
        salt = content_id(asked.tenant)
        for content in asked.content:
            place = (content * _MIXING ^ salt) * _MIXING >> 32 & 0xFFFF_FFFF
            if place < self._bound:
                self._use((asked.tenant, content), place, asked.arrival)

    def uses(self) -> Distribution:
        """Returns the distribution, over the sampled blocks, of the number of uses of a block."""
        found = Distribution()
        for block in self._blocks.values():
            found.add(block.uses)
        return found

    def concentration(self) -> list[tuple[float, float]]:
        """Returns pairs: a fraction of the blocks, counted from the most used, and their fraction of all uses."""
        counts = sorted((block.uses for block in self._blocks.values()), reverse=True)
        total, points, so_far = sum(counts), [(0.0, 0.0)], 0
        step = max(1, len(counts) // 200)
        for number, uses in enumerate(counts, 1):
            so_far += uses
            if number % step == 0 or number == len(counts):
                points.append((number / len(counts), so_far / total))
        return points

    def _use(self, key: tuple[str, int], place: int, now: float) -> None:
        block = self._blocks.get(key)
        if block is not None:
            self.reuse.add(now - block.last)
            block.last, block.uses = now, block.uses + 1
            return
        self._blocks[key] = _Block(place, now)
        heapq.heappush(self._highest, (-place, key))
        while len(self._blocks) > self._followed:
            highest, gone = heapq.heappop(self._highest)
            self._bound = -highest
            del self._blocks[gone]


def lines(locality: Locality) -> Iterable[str]:
    """Returns a description of the locality as lines of text."""
    uses = locality.uses()
    if not uses.count:
        return ["  the load does not say what prompts have in common"]
    hottest = max((part for blocks, part in locality.concentration() if blocks <= 0.01), default=0.0)
    reuse = locality.reuse
    return [
        f"  of {uses.count:,} blocks ({locality.sampled:.0%} of all): {locality.once:.0%} are used once; "
        f"the hottest 1% have {hottest:.0%} of all uses",
        f"  a block is used again after {reuse.quantile(0.5):.0f} s in the median, {reuse.quantile(0.9):.0f} s in 90%, "
        f"{reuse.quantile(0.99):.0f} s in 99%",
    ]
