"""One request of a load, independent of the trace's format."""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

MAX_TOKENS: Final = 2**22
"""The most tokens of one prompt or answer: four times what the longest models accept."""
MAX_TENANTS: Final = 10_000
"""The most tenants of one load; each is measured."""
MAX_BLOCKS: Final = 4_000_000
"""The most blocks of an engine; each is a vLLM object of a few hundred bytes."""
MAX_NAME: Final = 253
"""The most characters of a tenant's name, as in Kubernetes."""
MAX_SECONDS: Final = 400 * 86_400.0
"""The longest time from a load's beginning to its last request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a trace describes it: its lengths and the prefix that it shares with others, without any text."""

    arrival: float
    """Seconds since the load began."""
    prompt_tokens: int
    output_tokens: int
    content: tuple[int, ...] = ()
    """Ids of the prompt's parts of ``content_tokens`` tokens each: equal ids mean equal text up to that point."""
    content_tokens: int = 16
    known_tokens: int = 0
    """The number of tokens that the ids describe, of the prompt and of the answer if a later prompt continues it; the
    text after them is unique."""
    conversation: int = 0
    """The id that requests of one conversation share."""
    tenant: str = ""
    """The tenant's name; empty: the trace does not name it."""

    def at(self, arrival: float) -> "Asked":
        """Returns the same request with another arrival time."""
        return replace(self, arrival=arrival)


class TraceError(ValueError):
    """A trace can't be read; the message names the place and what is expected there."""


def content_id(name: str) -> int:
    """Returns a 63-bit id for a name in a trace, the same in each process."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def first_arrival_at_zero(arrival: float, first: float | None) -> tuple[float, float]:
    """Returns a time relative to the first one, and the first one: some traces use wall-clock times."""
    first = arrival if first is None else first
    return max(0.0, arrival - first), first
