"""A bound on the rate of moved bytes; pure."""

from math import inf


class RateLimit:
    """A token bucket: at most this many bytes a second, and at once at most those of one second, or one chunk.

    Args:
        bytes_per_second: the rate, above 0.
        chunk_bytes: the size of a chunk; only whole chunks are moved.
        now: monotonic time in seconds.
    """

    def __init__(self, bytes_per_second: float, chunk_bytes: int, now: float) -> None:
        self._rate = bytes_per_second
        self._chunk = chunk_bytes
        self.burst = max(bytes_per_second, float(chunk_bytes))
        """Bytes that may be moved at once after a rest."""
        self._saved, self._since = self.burst, now

    def chunks(self, now: float) -> int:
        """Returns the number of chunks that may be moved now."""
        return int(self._bytes(now) // self._chunk)

    def spend(self, chunks: int, now: float) -> None:
        """Count chunks as moved; at most as many as may be moved."""
        self._saved, self._since = self._bytes(now) - chunks * self._chunk, now

    def next_chunk(self, now: float) -> float:
        """Returns the time from which one more chunk may be moved, at the earliest ``now``."""
        lacking = self._chunk - self._bytes(now)
        return now if lacking <= 0 else now + (lacking / self._rate if self._rate else inf)

    def _bytes(self, now: float) -> float:
        return min(self.burst, self._saved + (now - self._since) * self._rate)
