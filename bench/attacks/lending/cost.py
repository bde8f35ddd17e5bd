"""Measures the cost of lending terms: the hit rates of lender and borrower under separate loads."""

import random
from dataclasses import dataclass

from bench.attacks.lending.scene import BORROWER, CAPACITY, LENDER, RESERVED, Scene, Terms
from bench.simulator.request import BLOCK_TOKENS, Request

_PROMPT = 16
"""Number of blocks in each prompt."""
_PROMPTS_PER_SECOND = 5.0
_TALKS_SECONDS, _SILENT_SECONDS = 20.0, 40.0
"""Mean times of the lender's active and idle periods."""
WARM_UP_SECONDS = 100.0
"""Time at the start that is not counted."""


@dataclass(frozen=True, slots=True)
class Found:
    """Hit rates of both, from 0 to 1."""

    lender: float
    borrower: float


def cost(terms: Terms, seconds: float, seed: int = 0) -> Found:
    """Have both send prompts for some time, and return their hit rates.

    Five times a second, the borrower sends a random one of its prompts, which together nearly fill the engine. The
    lender does the same with prompts that fill half of its reservation, but only in active periods. Its idle periods
    are twice as long on average.
    """
    rng, scene = random.Random(seed), Scene(terms)
    prompts = {
        LENDER: [scene.new_blocks(_PROMPT) for _ in range(RESERVED // 2 // _PROMPT)],
        BORROWER: [scene.new_blocks(_PROMPT) for _ in range(CAPACITY * 7 // 8 // _PROMPT)],
    }
    asked: dict[str, list[Request]] = {tenant: [] for tenant in prompts}
    talks_until = silent_until = 0.0
    while scene.now < seconds:
        scene.go_on_until(scene.now + rng.expovariate(_PROMPTS_PER_SECOND))
        if scene.now >= talks_until and scene.now >= silent_until:
            talks_until = scene.now + rng.expovariate(1 / _TALKS_SECONDS)
            silent_until = talks_until + rng.expovariate(1 / _SILENT_SECONDS)
        for tenant in (BORROWER, LENDER) if scene.now < talks_until else (BORROWER,):
            asked[tenant].append(scene.send(tenant, rng.choice(prompts[tenant])))
    return Found(_found(asked[LENDER]), _found(asked[BORROWER]))


def _found(requests: list[Request]) -> float:
    counted = [request for request in requests if request.arrival > WARM_UP_SECONDS]
    return sum(request.hit_tokens for request in counted) / (len(counted) * _PROMPT * BLOCK_TOKENS)
