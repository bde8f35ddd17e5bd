"""Settings of the shared tier: time limits, and limits of queries and transfers."""

from dataclasses import dataclass, replace
from typing import Final

QUERY_SECONDS: Final = 0.05
MOST_QUERY_SECONDS: Final = 5.0
"""Maximum time budget of a query, in seconds. Computing the prompt is better than waiting longer."""


def check_query_seconds(seconds: object) -> float:
    """Check the time budget of a request's query to the manager, and return it in seconds.

    Raises:
        ValueError: the value is not a number above 0 and at most ``MOST_QUERY_SECONDS``.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_QUERY_SECONDS:
        raise ValueError(f"must be more than 0 and at most {MOST_QUERY_SECONDS:g}, in seconds; it is {seconds!r}")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """The settings of one engine's shared tier."""

    askers: int = 4
    """Number of threads that call the manager."""
    readers: int = 8
    """Number of threads that read from each storage."""
    writers: int = 4
    """Number of threads that write to each storage."""
    query_seconds: float = QUERY_SECONDS
    """Time budget of a request's query, in seconds. After this time, the request computes its prompt."""
    call_seconds: float = 2.0
    """Timeout in seconds of any other call to the manager."""
    load_seconds: float = 2.0
    """Seconds after which the tier gives a load up."""
    store_seconds: float = 5.0
    """Seconds after which the tier gives a store up. Chunks that no thread has read by then are not stored."""
    chunks_at_once: int = 1024
    """Maximum number of a zone's chunks that are being stored. Also the maximum number that are being loaded."""
    held_seconds: float = 5.0
    """Seconds between two queries of the number of bytes that zones hold."""
    longest_trim_seconds: float = 60.0
    """Maximum seconds between two removals of a zone's expired chunks."""

    def for_chunks(self, chunks: int) -> "SharedSettings":
        """Returns settings that allow each zone ``chunks`` chunks in transfer. The timeouts grow in proportion."""
        times = max(1, -(-chunks // self.chunks_at_once))
        return replace(
            self,
            chunks_at_once=max(chunks, self.chunks_at_once),
            load_seconds=self.load_seconds * times,
            store_seconds=self.store_seconds * times,
        )
