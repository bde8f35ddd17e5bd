"""A generated load of many tenants, with conversations, shared prompts, bursts, and sleepers."""

import bisect
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.simulator.request import BLOCK_TOKENS, Request
from tenantzone_replay.traces.tenants import zipf_shares

REQUESTS_PER_SECOND = 6.0
"""Rate of requests of all tenants, before scaling by the speed."""
LONGEST_PROMPT = 60_000
LONGEST_ANSWER = 2_000
_BURST_CHANCE = 0.004
_FOLLOW_UP_CHANCE = 0.5


@dataclass(slots=True)
class Conversation:
    """The prefix of a follow-up prompt."""

    prefix: tuple[int, ...]
    tokens: int


@dataclass(slots=True)
class Tenant:
    """The state and habits of a tenant."""

    name: str
    shared: list[tuple[int, ...]]
    """System prompts, as ids of blocks."""
    quiet_until: float
    talks_until: float
    conversations: list[Conversation] = field(default_factory=list)


class GeneratedLoad:
    """A load with Poisson arrivals, Zipf-distributed tenants, and lognormal lengths of prompts and answers.

    Args:
        seed: the same seed gives the same load.
        tenants: the tenants, with the largest first.
        sleepers: the tenants that are idle for long and then send many requests at once.
        speed: the factor by which the rate of requests is increased.
    """

    def __init__(self, seed: int, tenants: list[str], sleepers: list[str], speed: float) -> None:
        self._random = random.Random(f"load {seed}")
        self._block_ids = itertools.count(1)
        self._rate = REQUESTS_PER_SECOND * speed
        self._sleepers = [self._new_tenant(name) for name in sleepers]
        self._tenants = [self._new_tenant(name) for name in tenants if name not in sleepers]
        self._ends = zipf_shares(len(self._tenants))

    def requests(self, count: int) -> Iterator[Request]:
        """Yields the requests in the order of arrival."""
        senders = self._senders()
        for number in range(count):
            now, tenant = next(senders)
            yield self._request(number, tenant, now)

    def _senders(self) -> Iterator[tuple[float, Tenant]]:
        """Yields the time and the sender of each request, endlessly."""
        rng = self._random
        now = 0.0
        while True:
            now += rng.expovariate(self._rate)
            for sleeper in self._sleepers:
                if now >= sleeper.quiet_until:
                    sleeper.quiet_until = now + rng.uniform(40, 200)
                    yield from ((now, sleeper) for _ in range(rng.randint(5, 50)))
            tenant = self._pick(now)
            if tenant is not None:
                burst = rng.randint(10, 60) if rng.random() < _BURST_CHANCE else 1
                yield from ((now, tenant) for _ in range(burst))

    def _new_tenant(self, name: str) -> Tenant:
        rng = self._random
        shared = [self._new_blocks(rng.randint(1, 8)) for _ in range(rng.randint(1, 3))]
        is_quiet_first = rng.random() < 0.3
        return Tenant(
            name=name,
            shared=shared,
            quiet_until=rng.uniform(5, 100) if is_quiet_first else 0.0,
            talks_until=rng.uniform(20, 300),
        )

    def _new_blocks(self, count: int) -> tuple[int, ...]:
        return tuple(itertools.islice(self._block_ids, count))

    def _pick(self, now: float) -> Tenant | None:
        """Draw a tenant; returns None if the drawn tenant is idle now."""
        rng = self._random
        index = min(bisect.bisect_right(self._ends, rng.random()), len(self._tenants) - 1)
        tenant = self._tenants[index]
        if now >= tenant.talks_until:
            tenant.quiet_until = now + rng.uniform(20, 200)
            tenant.talks_until = tenant.quiet_until + rng.uniform(20, 200)
        return tenant if now >= tenant.quiet_until else None

    def _request(self, number: int, tenant: Tenant, now: float) -> Request:
        rng = self._random
        new_tokens = min(LONGEST_PROMPT, int(rng.lognormvariate(7.6, 1.1)) + 16)
        past = None
        if tenant.conversations and rng.random() < _FOLLOW_UP_CHANCE:
            past = tenant.conversations.pop(rng.randrange(len(tenant.conversations)))
            if past.tokens + new_tokens > LONGEST_PROMPT:
                past = None
        if past is None:
            shared = rng.choice(tenant.shared)
            past = Conversation(shared, len(shared) * BLOCK_TOKENS)
        tokens = min(LONGEST_PROMPT, past.tokens + new_tokens)
        prefix = past.prefix + self._new_blocks(tokens // BLOCK_TOKENS - len(past.prefix))
        answer = max(1, min(LONGEST_ANSWER, int(rng.lognormvariate(5.2, 0.9))))
        tenant.conversations.append(Conversation(prefix, tokens + answer))
        if len(tenant.conversations) > 50:
            del tenant.conversations[0]
        return Request(number, tenant.name, now, tokens, answer, prefix)
