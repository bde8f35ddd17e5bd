"""Stores how many blocks each zone held in the last minutes, in a fixed amount of memory per zone."""

import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping

from tenantzone_operator.kube.store import Key

SAMPLE_SECONDS = 2.0
SAMPLES = 150
"""Number of samples per zone, for five minutes. At four bytes per sample, 5,000 zones need 3 MB."""
_UNKNOWN = -1
_MOST = 2**31 - 1


class History:
    """The newest samples of the blocks that each zone holds, in one ring per zone.

    Args:
        now: returns the Unix time in seconds.
        samples: the number of samples to keep.
    """

    def __init__(self, now: Callable[[], float] = time.time, samples: int = SAMPLES) -> None:
        self._now = now
        self._samples = samples
        self._newest = 0
        self._times: deque[float] = deque(maxlen=samples)
        self._rings: dict[Key, array[int]] = {}

    @property
    def times(self) -> list[float]:
        """Unix times of the samples, oldest first."""
        return list(self._times)

    def add(self, held: Mapping[Key, int | None]) -> None:
        """Add a sample of all zones.

        Args:
            held: the number of blocks that each existing zone holds, by namespace and name; None if unknown.
        """
        self._times.append(self._now())
        self._newest = (self._newest + 1) % self._samples
        self._rings = {key: self._rings.get(key) or array("i", [_UNKNOWN]) * self._samples for key in held}
        for key, blocks in held.items():
            # Cap the number, because the sum over many engines may not fit into four bytes.
            self._rings[key][self._newest] = _UNKNOWN if blocks is None else min(blocks, _MOST)

    def of(self, key: Key) -> list[int | None]:
        """Returns the zone's samples, one for each time in `times`; None for an unknown number."""
        ring = self._rings.get(key)
        count = len(self._times)
        if ring is None:
            return [None] * count
        in_order = ring[self._newest + 1 :] + ring[: self._newest + 1]
        return [None if blocks == _UNKNOWN else blocks for blocks in in_order[len(in_order) - count :]]
