"""The settings of the shared tier's queries and transfers."""

from dataclasses import dataclass, replace
from typing import Final

QUERY_SECONDS: Final = 0.05
MOST_QUERY_SECONDS: Final = 5.0
"""Maximum budget of a query. If a request would have to wait longer, it had better compute its prompt."""


def check_query_seconds(seconds: object) -> float:
    """Check the time budget of a request's query to the manager.

    Raises:
        ValueError: the value is not a valid budget.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_QUERY_SECONDS:
        raise ValueError(f"must be more than 0 and at most {MOST_QUERY_SECONDS:g}, in seconds; it is {seconds!r}")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """The settings of one engine."""

    askers: int = 4
    """Number of threads for queries. The next two fields are numbers of threads as well."""
    readers: int = 8
    writers: int = 4
    query_seconds: float = QUERY_SECONDS
    """Time budget of a request's query. A request computes its prompt instead of waiting longer."""
    call_seconds: float = 2.0
    """Timeout of any other call to the manager."""
    load_seconds: float = 2.0
    """Seconds after which a load is given up."""
    store_seconds: float = 5.0
    """Seconds after which a store is given up. Chunks that were not read from memory by then are not stored."""
    chunks_at_once: int = 1024
    """Maximum number of chunks of each zone in transfer, in each direction."""
    held_seconds: float = 5.0
    """Seconds between two queries of the zones' usage."""
    longest_trim_seconds: float = 60.0
    """Maximum seconds between two removals of expired chunks."""

    def for_chunks(self, chunks: int) -> "SharedSettings":
        """Returns settings that permit ``chunks`` chunks of a zone in transfer, with proportionally longer timeouts."""
        times = max(1, -(-chunks // self.chunks_at_once))
        return replace(
            self,
            chunks_at_once=max(chunks, self.chunks_at_once),
            load_seconds=self.load_seconds * times,
            store_seconds=self.store_seconds * times,
        )
