"""Summarizes a load before a replay: its tenants, their demand, and how often prefixes are used again."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_replay.simulation.locality import Locality
from tenantzone_replay.traces.load import Asked


@dataclass(slots=True)
class Demand:
    """The demand of one tenant."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class Profile:
    """A summary of a load."""

    demand: dict[str, Demand] = field(default_factory=dict)
    """Demand by tenant. Tenants are in the order of their first requests."""
    seconds: float = 0.0
    """Time from the beginning of the load to the last arrival, in seconds."""
    longest: int = 0
    """Number of tokens of the longest request, including its answer."""
    content_tokens: int = 16
    """``Asked.content_tokens`` of the first request with content ids, or 16 if no request has content ids."""
    tokens: int = 0
    """Number of tokens of all prompts and answers."""
    locality: Locality = field(default_factory=Locality)

    @property
    def requests(self) -> int:
        return sum(each.requests for each in self.demand.values())

    def blocks(self, block_tokens: int) -> int:
        """Returns an upper bound for the number of blocks that all requests need together, without shared prefixes."""
        return self.tokens // block_tokens + 2 * self.requests


def profile(load: Iterable[Asked]) -> Profile:
    """Read an entire load, and return its summary.

    Raises:
        TraceError: the load can't be read.
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
