"""The loads of the schedulers.

All prompts of a tenant have a common prefix, which may be cached. Answers differ in length, so that requests end in
different steps. Whenever a request ends, another one is sent.
"""

from dataclasses import dataclass

from hack.harness.kv_caches import BLOCK_TOKENS
from hack.harness.scheduler import prompt

_TENANTS = 1000
_FEW_TENANTS = 8
_ANSWER_TOKENS = 100
"""Mean length of answers in tokens; lengths are from 50 % to 150 % of the mean."""
_OWN_SEEDS = 1_000_000
"""First seed of the unique parts of prompts, which differ from all prefixes of tenants."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load.

    Args:
        title: a description of the situation that the load causes.
        capacity: the number of blocks in the pool.
        seats: the maximum number of running requests with zones.
        stock_seats: the maximum number of running requests on stock vLLM.
        prefix: the number of blocks that all prompts of a tenant begin with.
        own: the number of blocks after the prefix, which are unique to each prompt.
        requests: the number of unfinished requests at any time, assigned to tenants in rotation.
        zones: the number of declared zones in each arm other than stock.
        reserved: the number of blocks that each zone reserves.
        tenants: the number of tenants that send requests.
        targets: the maximum ratio to stock, by the arm's number of zones.
        step_tokens: the maximum number of tokens that a step computes.
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
        """Returns the tenant that sends the next request after one has ended: the same, if all always have requests."""
        return (tenant + self.requests) % self.tenants

    def prefix_tokens(self, tenant: int) -> list[int]:
        """Returns the prefix of all prompts of a tenant."""
        return prompt(self.prefix, seed=tenant, extra=0)

    def prompt_tokens(self, tenant: int, number: int) -> list[int]:
        """Returns a tenant's prompt, whose unique part is determined by the number."""
        return self.prefix_tokens(tenant) + prompt(self.own, seed=_OWN_SEEDS + number)

    def answer_tokens(self, number: int) -> int:
        """Returns the length of the answer to the prompt with this number."""
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
