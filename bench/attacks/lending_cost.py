"""The cost of lending terms: how much of its prompts each side finds in its cache under a load of its own."""

import random
from dataclasses import dataclass

from bench.attacks.lending import BORROWER, CAPACITY, LENDER, RESERVED, Scene, Terms
from bench.simulator.request import BLOCK_TOKENS, Request

_PROMPT = 16
"""Blocks of each prompt."""
_PROMPTS_PER_SECOND = 5.0
_TALKS_SECONDS, _SILENT_SECONDS = 20.0, 40.0
"""The lender's mean times of activity and silence."""
WARM_UP_SECONDS = 100.0
"""Seconds at the beginning that are not counted."""


@dataclass(frozen=True, slots=True)
class Found:
    """How much of the prompts was found in the cache, as a part of 1."""

    lender: float
    borrower: float


def cost(terms: Terms, seconds: float, seed: int = 0) -> Found:
    """Let both send prompts of their own for some time.

    The borrower asks for one of as many prompts as nearly fill the engine, whichever, five times a second. So does the
    lender, of as many as half fill its reservation, while it talks; then it is silent for twice as long, on average.
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
