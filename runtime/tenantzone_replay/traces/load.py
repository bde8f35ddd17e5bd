"""Defines a request of a load, independently of the trace's format."""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

MAX_TOKENS: Final = 2**22
"""Maximum number of tokens of a prompt or an answer. It is four times the longest context length of current models."""
MAX_TENANTS: Final = 10_000
"""Maximum number of tenants of a load. Bounded, because measuring each tenant takes memory."""
MAX_BLOCKS: Final = 4_000_000
"""Maximum number of blocks of an engine. Bounded, because each block is a vLLM object of a few hundred bytes."""
MAX_NAME: Final = 253
"""Maximum number of characters of a tenant's name, as in Kubernetes."""
MAX_SECONDS: Final = 400 * 86_400.0
"""Maximum time from the beginning of a load to its last request, in seconds."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a trace describes it, without text. Ids show which prefixes the request shares with others."""

    arrival: float
    """Seconds since the load began."""
    prompt_tokens: int
    output_tokens: int
    content: tuple[int, ...] = ()
    """Ids of the parts of the text. Each part has ``content_tokens`` tokens.

    If two requests have the same id, their texts are equal up to and including that part.
    """
    content_tokens: int = 16
    known_tokens: int = 0
    """Number of tokens, from the beginning of the prompt, that the ids describe. Later text is equal to no other text.

    The ids may also describe tokens of the answer, because later prompts may continue the conversation.
    """
    conversation: int = 0
    """Id of the conversation to which the request belongs."""
    tenant: str = ""
    """Name of the tenant, or "" if the trace does not name the tenant."""

    def at(self, arrival: float) -> "Asked":
        """Returns a copy of the request with a new arrival time."""
        return replace(self, arrival=arrival)


class TraceError(ValueError):
    """A trace or another input of a replay can't be used. The message names the place and what was expected there."""


def content_id(name: str) -> int:
    """Returns a 63-bit hash of a name in a trace. The hash is the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def first_arrival_at_zero(arrival: float, first: float | None) -> tuple[float, float]:
    """Returns the seconds since the first arrival, and the time of the first arrival. For traces with clock times.

    Args:
        arrival: the time of the arrival, in seconds.
        first: the time of the first arrival, or None if ``arrival`` is the first.
    """
    first = arrival if first is None else first
    return max(0.0, arrival - first), first
