"""What a load came to under one policy, for each tenant and over time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_replay.distribution import Distribution


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is to take at most, in seconds."""

    first_token: float = 2.0
    """From its arrival."""
    token: float = 0.1
    """From one token to the next, on average."""


@dataclass(slots=True)
class TenantMeasures:
    """What one tenant got."""

    requests: int = 0
    """That ended with an answer."""
    refused: int = 0
    """That had no answer, or one that ended with an error."""
    cut_short: int = 0
    """Of the requests, those whose answer ended before it was as long as was asked for."""
    prompt_tokens: int = 0
    hit_tokens: int = 0
    """Of these, found in the cache."""
    output_tokens: int = 0
    attained: int = 0
    """Requests with a whole answer that kept both targets."""
    first_token: Distribution = field(default_factory=Distribution)
    """Seconds from arrival."""
    token: Distribution = field(default_factory=Distribution)
    """Seconds from one token to the next, of each request on average."""
    evicted: Counter[str] = field(default_factory=Counter)
    """Cached blocks that it lost, by reason."""
    preemptions: int = 0
    lent: int = 0
    """Blocks of its reservation that others were lent."""
    borrowed: int = 0
    withheld_tokens: float = 0.0
    """That it could have had computed in a step and that were kept for others; or that a token bucket held back."""
    seat_seconds: float = 0.0
    """Requests that ran, times seconds."""
    block_seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def attainment(self) -> float:
        """The part of its requests that kept both targets; one that was refused or cut short did not."""
        asked = self.requests + self.refused
        return self.attained / asked if asked else 1.0


@dataclass(frozen=True, slots=True)
class Moment:
    """What the engine looked like at one time."""

    seconds: float
    held: dict[str, int]
    """Blocks by tenant, in use and cached; where prefixes are shared, all stand under the empty name."""
    hit_tokens: int
    """Up to then, of all; so is the next."""
    prompt_tokens: int
    waiting: int
    running: int = 0
    lent: dict[str, int] = field(default_factory=dict)
    """Blocks of each tenant's reservation that others stand on."""


@dataclass(slots=True)
class Result:
    """One policy's."""

    policy: str
    what: str
    blocks: int
    block_tokens: int
    tenants: dict[str, TenantMeasures]
    moments: list[Moment] = field(default_factory=list)
    seconds: float = 0.0
    """Virtual ones, until the last answer."""
    busy_seconds: float = 0.0
    """In which steps ran."""
    steps: int = 0
    at_a_time: float = 0.0
    """Requests that ran while others waited, on average; 0.0: none ever waited."""
    took_seconds: float = 0.0
    """Real ones."""

    @property
    def hit_tokens(self) -> int:
        """Of all tenants."""
        return sum(each.hit_tokens for each in self.tenants.values())

    @property
    def hit_rate(self) -> float:
        """Of all tenants' prompt tokens."""
        return self.hit_tokens / max(1, sum(each.prompt_tokens for each in self.tenants.values()))

    @property
    def worst(self) -> float:
        """The part of its requests that the tenant which fared worst had in time."""
        return min(each.attainment for each in self.tenants.values())

    @property
    def attainment(self) -> float:
        """Of all requests."""
        asked = sum(each.requests + each.refused for each in self.tenants.values())
        return sum(each.attained for each in self.tenants.values()) / max(1, asked)

    @property
    def cut_short(self) -> int:
        """Of all tenants' requests."""
        return sum(each.cut_short for each in self.tenants.values())

    @property
    def utilization(self) -> float:
        """The part of the time in which a step ran."""
        return self.busy_seconds / self.seconds if self.seconds else 0.0

    def first_token(self) -> Distribution:
        """Seconds to the first token, of all tenants' requests."""
        return _merged(each.first_token for each in self.tenants.values())

    def token(self) -> Distribution:
        """Seconds from token to token, of all tenants' requests."""
        return _merged(each.token for each in self.tenants.values())


def _merged(distributions: Iterable[Distribution]) -> Distribution:
    merged = Distribution()
    for each in distributions:
        merged.merge(each)
    return merged
