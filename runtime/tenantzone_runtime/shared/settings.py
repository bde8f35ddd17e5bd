"""How the shared tier asks, and how it moves chunks."""

from dataclasses import dataclass, replace
from typing import Final

QUERY_SECONDS: Final = 0.05
MOST_QUERY_SECONDS: Final = 5.0
"""Whoever would wait longer had better compute."""


def check_query_seconds(seconds: object) -> float:
    """Check how long a request's question to the manager may take.

    Raises:
        ValueError: it is no such time.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_QUERY_SECONDS:
        raise ValueError(f"must be more than 0 and at most {MOST_QUERY_SECONDS:g}, in seconds; it is {seconds!r}")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """Of one engine."""

    askers: int = 4
    """Threads; so are the next two."""
    readers: int = 8
    writers: int = 4
    query_seconds: float = QUERY_SECONDS
    """The budget of a request's question: whoever waits for it computes instead."""
    call_seconds: float = 2.0
    """That any other call of the manager may take."""
    load_seconds: float = 2.0
    """After which a load is given up."""
    store_seconds: float = 5.0
    """After which a store is given up: what it has not read by then is not stored."""
    chunks_at_once: int = 1024
    """Of each zone on their way, each way."""
    held_seconds: float = 5.0
    """Between two looks at what zones hold."""
    longest_trim_seconds: float = 60.0
    """Between two looks for what is too old, at most."""

    def for_chunks(self, chunks: int) -> "SharedSettings":
        """As it is where a zone has so many chunks on their way together, if that is more; all of them have longer."""
        times = max(1, -(-chunks // self.chunks_at_once))
        return replace(
            self,
            chunks_at_once=max(chunks, self.chunks_at_once),
            load_seconds=self.load_seconds * times,
            store_seconds=self.store_seconds * times,
        )
