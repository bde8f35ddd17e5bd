"""Random loads: one zone with a token-time target, and a flood that keeps every step full."""

import math
import random
from dataclasses import dataclass, replace

from bench.noisy_neighbour.asking import Shape
from bench.noisy_neighbour.eager_gpu import EagerGpu
from tenantzone_runtime.zones.latency_bounds import token_time_bound

TARGET_SECONDS = 0.04


@dataclass(frozen=True, slots=True)
class Load:
    """One load.

    Attributes:
        shape: the requests of both tenants.
        flood_at_once: requests that the flood keeps open.
        overlaps: whether the GPU computes prompts while the host launches kernels.
        noise: standard deviation of a step's time, as a fraction of it.
        seed: draws prompts, arrival times and noise.
    """

    shape: Shape
    flood_at_once: int
    overlaps: bool
    noise: float
    seed: int

    def hardware(self) -> EagerGpu:
        """Returns the GPU that this load runs on."""
        return EagerGpu(random.Random(self.seed), self.overlaps, noise=self.noise)

    def own_prefill_seconds(self, steps_in_flight: int) -> float:
        """Returns what the zone's prompts that wait at the same time would add to one step, in seconds.

        A prompt that arrives waits for the steps in flight and is computed in the next one. Other prompts of the zone
        arrive meanwhile.
        """
        prompts = 1.0 + self.shape.rate * (steps_in_flight + 1) * TARGET_SECONDS
        return prompts * self.shape.own_tokens / self.hardware().prompt_tokens_per_second

    def bound(self, steps_in_flight: int) -> float:
        """Returns the promised 99th percentile of the seconds between two tokens of the zone."""
        hardware = self.hardware()
        return token_time_bound(
            TARGET_SECONDS,
            solo_step=hardware.launch_seconds,
            own_prefill=self.own_prefill_seconds(steps_in_flight),
        )


def random_load(seed: int, seconds: float) -> Load:
    """Returns a load in which the zone sends requests for ``seconds``; the same one for the same seed."""
    rng = random.Random(seed)
    answer = rng.choice((16, 32, 64, 128))
    shape = Shape(
        prefix_tokens=rng.choice((0, 128, 512, 1024)),
        own_tokens=round(math.exp(rng.uniform(math.log(16), math.log(2000)))),
        answer_tokens=answer,
        # Long prompts and short answers: prompts of the flood wait at every step.
        flood_tokens=round(math.exp(rng.uniform(math.log(1000), math.log(3500)))),
        flood_answer_tokens=rng.choice((8, 16, 32)),
        rate=1.0,
        requests=1,
    )
    # At most 8 requests of the zone generate at a time, and its prompts take at most a third of the GPU.
    most = min(8.0 / (answer * TARGET_SECONDS), 8000.0 / shape.own_tokens)
    rate = rng.uniform(0.25, 1.0) * most
    shape = replace(shape, rate=rate, requests=math.ceil(rate * seconds))
    return Load(shape, rng.choice((32, 64, 96)), rng.random() < 0.5, rng.uniform(0.0, 0.08), seed)
