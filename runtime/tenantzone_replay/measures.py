"""The results of a load under one policy, for each tenant and over time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_replay.distribution import Distribution


@dataclass(frozen=True, slots=True)
class Target:
    """The latency targets of a request, in seconds."""

    first_token: float = 2.0
    """The target for the time to first token."""
    token: float = 0.1
    """The target for the mean time between tokens."""


@dataclass(slots=True)
class TenantMeasures:
    """The results of one tenant."""

    requests: int = 0
    """Requests that ended with an answer."""
    refused: int = 0
    """Requests without an answer, or with one that ended with an error."""
    cut_short: int = 0
    """Requests whose answer ended before the requested length."""
    prompt_tokens: int = 0
    hit_tokens: int = 0
    """Prompt tokens found in the cache."""
    output_tokens: int = 0
    attained: int = 0
    """Requests with a complete answer that met both targets."""
    first_token: Distribution = field(default_factory=Distribution)
    """Seconds from arrival to the first token."""
    token: Distribution = field(default_factory=Distribution)
    """The mean seconds between tokens of each request."""
    evicted: Counter[str] = field(default_factory=Counter)
    """Cached blocks that the tenant lost, by reason."""
    preemptions: int = 0
    lent: int = 0
    """Blocks of the tenant's reservation that were lent to others."""
    borrowed: int = 0
    withheld_tokens: float = 0.0
    """Tokens that a step could have computed and kept for others, or that a token bucket held back."""
    seat_seconds: float = 0.0
    """Running requests times seconds."""
    block_seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def attainment(self) -> float:
        """The part of its requests that met both targets; refused and truncated requests did not."""
        asked = self.requests + self.refused
        return self.attained / asked if asked else 1.0


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of the engine at one time."""

    seconds: float
    held: dict[str, int]
    """Blocks in use and cached, by tenant; if prefixes are shared, all are under the empty name."""
    hit_tokens: int
    """Hit tokens of all tenants up to this time; the next is for all tenants up to this time, too."""
    prompt_tokens: int
    waiting: int
    running: int = 0
    lent: dict[str, int] = field(default_factory=dict)
    """Blocks of each tenant's reservation that others have borrowed."""


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
    """Virtual seconds until the last answer."""
    busy_seconds: float = 0.0
    """Virtual seconds in which steps ran."""
    steps: int = 0
    at_a_time: float = 0.0
    """The mean number of running requests while others waited; 0.0: none ever waited."""
    took_seconds: float = 0.0
    """Real seconds that the replay took."""

    @property
    def hit_tokens(self) -> int:
        """Hit tokens of all tenants."""
        return sum(each.hit_tokens for each in self.tenants.values())

    @property
    def hit_rate(self) -> float:
        """The part of all prompt tokens that was found in the cache."""
        return self.hit_tokens / max(1, sum(each.prompt_tokens for each in self.tenants.values()))

    @property
    def worst(self) -> float:
        """The part of its requests that the worst tenant had in time."""
        return min(each.attainment for each in self.tenants.values())

    @property
    def attainment(self) -> float:
        """The part of all requests that met both targets."""
        asked = sum(each.requests + each.refused for each in self.tenants.values())
        return sum(each.attained for each in self.tenants.values()) / max(1, asked)

    @property
    def cut_short(self) -> int:
        """The truncated requests of all tenants."""
        return sum(each.cut_short for each in self.tenants.values())

    @property
    def utilization(self) -> float:
        """The part of the time in which a step ran."""
        return self.busy_seconds / self.seconds if self.seconds else 0.0

    def first_token(self) -> Distribution:
        """Seconds to the first token, of all tenants' requests."""
        return _merged(each.first_token for each in self.tenants.values())

    def token(self) -> Distribution:
        """Seconds between tokens, of all tenants' requests."""
        return _merged(each.token for each in self.tenants.values())


def _merged(distributions: Iterable[Distribution]) -> Distribution:
    merged = Distribution()
    for each in distributions:
        merged.merge(each)
    return merged
