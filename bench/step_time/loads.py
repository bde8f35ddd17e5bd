"""What the schedulers are asked to do.

All prompts of a tenant begin in the same way, so that a part of each may be found in its cache. Answers differ in
length, so that requests end in different steps. Whenever one ends, another one is sent.
"""

from dataclasses import dataclass

from hack.harness.kv_caches import BLOCK_TOKENS
from hack.harness.scheduler import prompt

_TENANTS = 1000
_FEW_TENANTS = 8
_ANSWER_TOKENS = 100
"""On average; from half of that to half as much again."""
_OWN_SEEDS = 1_000_000
"""Prompts from here on begin as no tenant's prefix does."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load; amounts are blocks unless stated otherwise.

    Args:
        title: the situation that it brings about.
        capacity: of the pool.
        seats: requests that may run at a time.
        stock_seats: the same of stock vLLM.
        prefix: shared by all prompts of a tenant.
        own: the unique rest of a prompt.
        requests: the number at any time, tenant after tenant.
        zones: the number of declared zones in each arm other than stock.
        reserved: for each zone.
        tenants: that send.
        targets: the most that the ratio to stock should be, by the arm's number of zones.
        step_tokens: the largest number of tokens that a step computes.
    """

    title: str
    capacity: int
    seats: int
    stock_seats: int
    prefix: int
    own: int
    requests: int
    zones: tuple[int, ...]
    targets: dict[int, float]
    reserved: int = 0
    tenants: int = _TENANTS
    step_tokens: int = 256 * BLOCK_TOKENS

    def follower(self, tenant: int) -> int:
        """Returns the tenant that sends after a tenant's request has ended: itself, if all always have requests."""
        return (tenant + self.requests) % self.tenants

    def prefix_tokens(self, tenant: int) -> list[int]:
        """Returns the prefix of all prompts of a tenant."""
        return prompt(self.prefix, seed=tenant, extra=0)

    def prompt_tokens(self, tenant: int, number: int) -> list[int]:
        """A prompt of a tenant; there is no other one of that number."""
        return self.prefix_tokens(tenant) + prompt(self.own, seed=_OWN_SEEDS + number)

    def answer_tokens(self, number: int) -> int:
        """How long the answer to that prompt is."""
        return _ANSWER_TOKENS // 2 + number * 37 % _ANSWER_TOKENS


LOADS = {
    "no-queue": Load(
        "no request waits",
        capacity=65_536,
        seats=256,
        stock_seats=256,
        prefix=8,
        own=8,
        requests=256,
        zones=(0, 1, _TENANTS),
        targets={1: 1.02, _TENANTS: 1.05},
    ),
    "seats": Load(
        "1,000 tenants wait for a seat",
        capacity=65_536,
        seats=256,
        stock_seats=256,
        prefix=8,
        own=8,
        requests=2 * _TENANTS,
        zones=(_TENANTS,),
        targets={_TENANTS: 1.25},
    ),
    "blocks": Load(
        "1,000 tenants wait for blocks",
        capacity=5_000,
        seats=512,
        stock_seats=512,
        prefix=8,
        own=8,
        requests=2 * _TENANTS,
        zones=(_TENANTS,),
        targets={_TENANTS: 1.25},
    ),
    "reservations": Load(
        "1,000 tenants wait for blocks beyond what each has reserved, and has cached",
        capacity=54_656,
        seats=512,
        stock_seats=256,
        prefix=40,
        own=30,
        requests=2 * _TENANTS,
        zones=(_TENANTS,),
        targets={_TENANTS: 1.25},
        reserved=48,
    ),
    "contended": Load(
        "8 tenants wait for seats, blocks and tokens of steps",
        capacity=2_300,
        seats=64,
        stock_seats=64,
        prefix=8,
        own=24,
        requests=256,
        zones=(_FEW_TENANTS,),
        targets={_FEW_TENANTS: 1.5},
        reserved=220,
        tenants=_FEW_TENANTS,
        step_tokens=256,
    ),
}
