"""What tenants ask for: one request of a load, whatever trace it is from."""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

MAX_TOKENS: Final = 2**22
"""Of one prompt or answer: four times what the longest models take."""
MAX_TENANTS: Final = 10_000
"""Of one load, each of which is measured."""
MAX_BLOCKS: Final = 4_000_000
"""Of an engine; each is an object of vLLM's, of some hundred bytes."""
MAX_NAME: Final = 253
"""Letters of a tenant's name, as Kubernetes has it."""
MAX_SECONDS: Final = 400 * 86_400.0
"""From a load's beginning to its last request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a trace tells it: how long it is and what it has in common with others, and no word of its text."""

    arrival: float
    """Seconds since the load began."""
    prompt_tokens: int
    output_tokens: int
    content: tuple[int, ...] = ()
    """Ids of what the prompt begins with, one for each ``content_tokens``: equal ids mean an equal text up to there."""
    content_tokens: int = 16
    known_tokens: int = 0
    """Up to where the ids tell the text of the prompt, and of the answer where it is gone on with; what comes after it
    is like nobody else's."""
    conversation: int = 0
    """What requests of one conversation have in common."""
    tenant: str = ""
    """Empty: the trace does not say."""

    def at(self, arrival: float) -> "Asked":
        """The same request at another time."""
        return replace(self, arrival=arrival)


class TraceError(ValueError):
    """A trace that can't be read; the message names the place and what is expected there."""


def content_id(name: str) -> int:
    """An id of 63 bits for what a trace calls by a name, the same in each process."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def first_arrival_at_zero(arrival: float, first: float | None) -> tuple[float, float]:
    """A time since the first one, and the first one; traces tell wall clocks as well as times since their beginning."""
    first = arrival if first is None else first
    return max(0.0, arrival - first), first
