"""Defines a request of a load, independent of the trace's format."""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

MAX_TOKENS: Final = 2**22
"""Maximum number of tokens of a prompt or an answer: four times the context length of the longest models."""
MAX_TENANTS: Final = 10_000
"""Maximum number of tenants of a load, because each tenant is measured."""
MAX_BLOCKS: Final = 4_000_000
"""Maximum number of blocks of an engine, because each block is a vLLM object of a few hundred bytes."""
MAX_NAME: Final = 253
"""Maximum number of characters of a tenant's name, as in Kubernetes."""
MAX_SECONDS: Final = 400 * 86_400.0
"""Maximum time from the beginning of a load to its last request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a trace describes it: its lengths, and ids that show which prefixes it shares, but no text."""

    arrival: float
    """Seconds since the load began."""
    prompt_tokens: int
    output_tokens: int
    content: tuple[int, ...] = ()
    """Ids of the text's parts of ``content_tokens`` tokens each.

    If two requests have an equal id, their texts are equal up to and including that part.
    """
    content_tokens: int = 16
    known_tokens: int = 0
    """Number of tokens, from the beginning of the prompt, that the ids describe. All text after them is unique.

    This may include tokens of the answer, if later prompts continue the conversation.
    """
    conversation: int = 0
    """Id of the conversation, which all its requests share."""
    tenant: str = ""
    """Name of the tenant; empty if the trace does not name it."""

    def at(self, arrival: float) -> "Asked":
        """Returns a copy of the request with a new arrival time."""
        return replace(self, arrival=arrival)


class TraceError(ValueError):
    """A trace or another input of a replay can't be used. The message says where the error is and what was expected."""


def content_id(name: str) -> int:
    """Returns a 63-bit hash of a name in a trace, which is the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def first_arrival_at_zero(arrival: float, first: float | None) -> tuple[float, float]:
    """Returns an arrival time relative to the first one, and the first one, which is ``arrival`` if ``first`` is None.

    Traces with wall-clock times need this.
    """
    first = arrival if first is None else first
    return max(0.0, arrival - first), first
