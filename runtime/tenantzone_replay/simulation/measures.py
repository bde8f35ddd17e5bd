"""Results of a load under one policy, by tenant and over time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_replay.simulation.distribution import Distribution


@dataclass(frozen=True, slots=True)
class Target:
    """The latency targets of a request, in seconds."""

    first_token: float = 2.0
    """Target for the time to first token."""
    token: float = 0.1
    """Target for the mean time between tokens."""


@dataclass(slots=True)
class TenantMeasures:
    """The results of one tenant."""

    requests: int = 0
    """Number of requests that ended with a response."""
    refused: int = 0
    """Number of requests that got no response, or whose response ended with an error."""
    cut_short: int = 0
    """Number of requests whose response was shorter than the requested length."""
    prompt_tokens: int = 0
    hit_tokens: int = 0
    """Number of prompt tokens found in the cache."""
    output_tokens: int = 0
    attained: int = 0
    """Number of requests with a complete response that met both targets."""
    first_token: Distribution = field(default_factory=Distribution)
    """Distribution of the time from arrival to the first token, in seconds."""
    token: Distribution = field(default_factory=Distribution)
    """Distribution of the requests' mean times between tokens, in seconds."""
    evicted: Counter[str] = field(default_factory=Counter)
    """Number of the tenant's evicted blocks, by reason."""
    preemptions: int = 0
    lent: int = 0
    """Number of blocks of the tenant's reservation that were lent to other tenants."""
    borrowed: int = 0
    withheld_tokens: float = 0.0
    """Number of tokens that a token bucket delayed, or that zones kept out of steps to leave room for other tenants."""
    seat_seconds: float = 0.0
    """Integral of the number of running requests over time, in request seconds."""
    block_seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def attainment(self) -> float:
        """Fraction of the tenant's requests that met both targets. Refused and truncated requests did not meet them."""
        asked = self.requests + self.refused
        return self.attained / asked if asked else 1.0


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of the engine at one time."""

    seconds: float
    held: dict[str, int]
    """Number of used and cached blocks, by tenant. If tenants share prefixes, all blocks are under the name ""."""
    hit_tokens: int
    """Number of hit tokens of all tenants up to this time. The next field is also a total up to this time."""
    prompt_tokens: int
    waiting: int
    running: int = 0
    lent: dict[str, int] = field(default_factory=dict)
    """Number of blocks of each tenant's reservation that other tenants have borrowed, by lender."""


@dataclass(slots=True)
class Result:
    """The results of one policy."""

    policy: str
    what: str
    blocks: int
    block_tokens: int
    tenants: dict[str, TenantMeasures]
    moments: list[Moment] = field(default_factory=list)
    seconds: float = 0.0
    """Virtual seconds until the last response."""
    busy_seconds: float = 0.0
    """Virtual seconds in which steps ran."""
    steps: int = 0
    at_a_time: float = 0.0
    """Mean number of running requests while other requests waited, or 0.0 if no request ever waited."""
    took_seconds: float = 0.0
    """Duration of the replay in wall-clock seconds."""

    @property
    def hit_tokens(self) -> int:
        """Number of hit tokens of all tenants."""
        return sum(each.hit_tokens for each in self.tenants.values())

    @property
    def hit_rate(self) -> float:
        """Fraction of all prompt tokens that were found in the cache."""
        return self.hit_tokens / max(1, sum(each.prompt_tokens for each in self.tenants.values()))

    @property
    def worst(self) -> float:
        """Fraction of requests in time for the tenant for which this fraction is lowest."""
        return min(each.attainment for each in self.tenants.values())

    @property
    def attainment(self) -> float:
        """Fraction of all requests that met both targets."""
        asked = sum(each.requests + each.refused for each in self.tenants.values())
        return sum(each.attained for each in self.tenants.values()) / max(1, asked)

    @property
    def cut_short(self) -> int:
        """Number of truncated requests of all tenants."""
        return sum(each.cut_short for each in self.tenants.values())

    @property
    def utilization(self) -> float:
        """Fraction of the time in which a step ran."""
        return self.busy_seconds / self.seconds if self.seconds else 0.0

    def first_token(self) -> Distribution:
        """Returns the distribution of seconds to the first token, over the requests of all tenants."""
        return _merged(each.first_token for each in self.tenants.values())

    def token(self) -> Distribution:
        """Returns the distribution of mean seconds between tokens, over the requests of all tenants."""
        return _merged(each.token for each in self.tenants.values())


def _merged(distributions: Iterable[Distribution]) -> Distribution:
    merged = Distribution()
    for each in distributions:
        merged.merge(each)
    return merged
