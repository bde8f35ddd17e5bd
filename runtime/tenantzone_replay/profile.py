"""What a load comes to before anybody serves it: who asks, how much, and what could be found again."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_replay.load import Asked
from tenantzone_replay.locality import Locality


@dataclass(slots=True)
class Demand:
    """What one tenant asks for."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class Profile:
    """One pass over a load."""

    demand: dict[str, Demand] = field(default_factory=dict)
    """By tenant, in the order in which they came."""
    seconds: float = 0.0
    """From the beginning to the last arrival."""
    longest: int = 0
    """Tokens of the longest request, with its answer."""
    content_tokens: int = 16
    """Of the first request that tells its content."""
    tokens: int = 0
    """Of all prompts and answers."""
    locality: Locality = field(default_factory=Locality)

    @property
    def requests(self) -> int:
        return sum(each.requests for each in self.demand.values())

    def blocks(self, block_tokens: int) -> int:
        """In which all of it fits side by side, whatever it has in common."""
        return self.tokens // block_tokens + 2 * self.requests


def profile(load: Iterable[Asked]) -> Profile:
    """Read a load once.

    Raises:
        TraceError: it can't be read.
    """
    found = Profile()
    has_content = False
    for asked in load:
        demand = found.demand.setdefault(asked.tenant, Demand())
        demand.requests += 1
        demand.prompt_tokens += asked.prompt_tokens
        demand.output_tokens += asked.output_tokens
        found.seconds = asked.arrival
        found.locality.add(asked)
        found.tokens += asked.prompt_tokens + asked.output_tokens
        found.longest = max(found.longest, asked.prompt_tokens + asked.output_tokens)
        if asked.content and not has_content:
            has_content, found.content_tokens = True, asked.content_tokens
    return found
