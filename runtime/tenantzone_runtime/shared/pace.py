"""A bound on how fast bytes are moved; pure."""

from math import inf


class Pace:
    """So many bytes a second, and in any moment at most what one second, or one chunk, comes to.

    Args:
        bytes_per_second: above 0.
        chunk_bytes: of which whole ones are moved.
        now: the time in seconds, on a clock that does not run backwards.
    """

    def __init__(self, bytes_per_second: float, chunk_bytes: int, now: float) -> None:
        self._rate = bytes_per_second
        self._chunk = chunk_bytes
        self.burst = max(bytes_per_second, float(chunk_bytes))
        """Bytes that may be moved at once after a rest."""
        self._saved, self._since = self.burst, now

    def chunks(self, now: float) -> int:
        """How many chunks may be moved now."""
        return int(self._bytes(now) // self._chunk)

    def spend(self, chunks: int, now: float) -> None:
        """Count chunks as moved; no more than may be."""
        self._saved, self._since = self._bytes(now) - chunks * self._chunk, now

    def next_chunk(self, now: float) -> float:
        """When one more chunk may be moved; not before now."""
        lacking = self._chunk - self._bytes(now)
        return now if lacking <= 0 else now + (lacking / self._rate if self._rate else inf)

    def _bytes(self, now: float) -> float:
        return min(self.burst, self._saved + (now - self._since) * self._rate)
