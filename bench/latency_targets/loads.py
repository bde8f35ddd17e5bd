"""Random loads of one zone with a token-time target, and a flood that fills every step."""

import math
import random
from dataclasses import dataclass, replace

from bench.noisy_neighbour.asking import Shape
from bench.noisy_neighbour.eager_gpu import EagerGpu
from tenantzone_runtime.zones.tokens.latency_bounds import token_time_bound

TARGET_SECONDS = 0.04


@dataclass(frozen=True, slots=True)
class Load:
    """One load.

    Attributes:
        shape: the requests of both tenants.
        flood_at_once: the number of requests that the flood keeps in flight.
        overlaps: whether the GPU computes prompts while the host launches kernels.
        noise: the standard deviation of a step's time, as a fraction of the time.
        stall_share: the fraction of steps that take twice as long.
        seed: the seed of prompts, arrival times and noise.
    """

    shape: Shape
    flood_at_once: int
    overlaps: bool
    noise: float
    stall_share: float
    seed: int

    def hardware(self) -> EagerGpu:
        """Returns the GPU that this load runs on."""
        return EagerGpu(random.Random(self.seed), self.overlaps, noise=self.noise, stall_share=self.stall_share)

    def bound(self, waiting: float) -> float:
        """Returns the promised 99th percentile of the seconds between two tokens of the zone.

        Args:
            waiting: the 99th percentile of the number of the zone's prompts that wait at the same time.
        """
        hardware = self.hardware()
        prefill = waiting * self.shape.own_tokens / hardware.prompt_tokens_per_second
        return token_time_bound(TARGET_SECONDS, solo_step=hardware.launch_seconds, own_prefill=prefill)


def random_load(seed: int, seconds: float, *, long: bool = False, stall_share: float = 0.0) -> Load:
    """Returns a random load; equal seeds give equal loads.

    Args:
        seed: the seed of all random choices.
        seconds: the time during which the zone sends requests.
        long: whether the zone's waiting prompts are too long to fit into the target.
        stall_share: the fraction of steps that take twice as long, for a reason outside of the load.
    """
    rng = random.Random(seed)
    answer = rng.choice((16, 32, 64, 128))
    own = rng.uniform(2500, 3500) if long else math.exp(rng.uniform(math.log(16), math.log(2000)))
    shape = Shape(
        prefix_tokens=0 if long else rng.choice((0, 128, 512, 1024)),
        own_tokens=round(own),
        answer_tokens=answer,
        # With long prompts and short answers, prompts of the flood are waiting in every step.
        flood_tokens=round(math.exp(rng.uniform(math.log(1000), math.log(3500)))),
        flood_answer_tokens=rng.choice((8, 16, 32)),
        rate=1.0,
        requests=1,
    )
    # At most 8 requests of the zone generate at once, and its prompts take at most a third of the GPU (half if long).
    most = min(8.0 / (answer * TARGET_SECONDS), (12_000.0 if long else 8000.0) / shape.own_tokens)
    rate = (1.0 if long else rng.uniform(0.25, 1.0)) * most
    shape = replace(shape, rate=rate, requests=math.ceil(rate * seconds))
    return Load(
        shape,
        flood_at_once=rng.choice((32, 64, 96)),
        overlaps=rng.random() < 0.5,
        noise=rng.uniform(0.0, 0.08),
        stall_share=stall_share,
        seed=seed,
    )
