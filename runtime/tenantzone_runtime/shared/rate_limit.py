"""A rate limit for transferred chunks. It does no I/O, and gets the time as an argument."""

from math import inf


class RateLimit:
    """A token bucket for bytes. Its burst is the larger of the bytes of one second and the bytes of one chunk.

    Args:
        bytes_per_second: the rate. If it is 0, no chunk may be moved after the first burst.
        chunk_bytes: size of a chunk in bytes. Only whole chunks are moved.
        now: monotonic time in seconds.
    """

    def __init__(self, bytes_per_second: float, chunk_bytes: int, now: float) -> None:
        self._rate = bytes_per_second
        self._chunk = chunk_bytes
        self.burst = max(bytes_per_second, float(chunk_bytes))
        """Maximum number of bytes that may be moved at once."""
        self._saved, self._since = self.burst, now

    def chunks(self, now: float) -> int:
        """Returns the number of chunks that may be moved now."""
        return int(self._bytes(now) // self._chunk)

    def spend(self, chunks: int, now: float) -> None:
        """Count ``chunks`` chunks as moved. The caller must not exceed the number that :meth:`chunks` returns."""
        self._saved, self._since = self._bytes(now) - chunks * self._chunk, now

    def next_chunk(self, now: float) -> float:
        """Returns the earliest time, not before ``now``, at which one more chunk may be moved."""
        lacking = self._chunk - self._bytes(now)
        return now if lacking <= 0 else now + (lacking / self._rate if self._rate else inf)

    def _bytes(self, now: float) -> float:
        return min(self.burst, self._saved + (now - self._since) * self._rate)
