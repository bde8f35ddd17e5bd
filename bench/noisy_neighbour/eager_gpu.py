"""A model of a GPU with an eager engine: a minimum time for each step, and a rate for computing prompts."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tenantzone_replay.simulation.hardware import MODELS

_MODEL = MODELS["8b"]


@dataclass(slots=True)
class EagerGpu:
    """Step times of an 8B model on an H100 without CUDA graphs, as measured in `bench/gpu/results`.

    A step that only generates takes as long as the host needs to launch its kernels. The time to compute prompts either
    adds to that time or overlaps with it, depending on the engine's build.

    Args:
        rng: draws the noise of each step.
        overlaps: whether the GPU computes prompts while the host launches kernels.
        launch_seconds: the minimum time of a step.
        prompt_tokens_per_second: the rate at which prompts are computed.
        noise: the standard deviation of a step's time, as a fraction of the time.
        stall_share: the fraction of steps that take twice as long.
    """

    rng: random.Random
    overlaps: bool = False
    launch_seconds: float = 0.020
    prompt_tokens_per_second: float = 25_000.0
    noise: float = 0.03
    stall_share: float = 0.0
    title: str = field(default="8B on one H100, eager", init=False)
    cache_bytes_per_token: int = field(default=_MODEL.cache_bytes_per_token, init=False)
    gpu_count: int = field(default=1, init=False)
    outside_seconds: float = field(default=0.0, init=False)

    def blocks(self, block_tokens: int) -> int:
        """Returns the number of blocks that fit into memory next to the weights."""
        return _MODEL.blocks(block_tokens)

    def load_seconds(self, tokens: int) -> float:
        """Returns the seconds to load the keys and values of ``tokens`` tokens from the host's memory."""
        return _MODEL.load_seconds(tokens)

    def step_seconds(self, scheduled: Iterable[tuple[int, int]]) -> float:
        """Returns the seconds of one step.

        Args:
            scheduled: for each request, the tokens that the step computes and the request's length with them.
        """
        exact = self.exact_seconds(scheduled)
        factor = max(0.7, self.rng.gauss(1.0, self.noise))
        return exact * factor * (2.0 if self.rng.random() < self.stall_share else 1.0)

    def exact_seconds(self, scheduled: Iterable[tuple[int, int]]) -> float:
        """Returns the seconds of one step without noise."""
        prompt = attention = 0.0
        decodes = 0
        for tokens, length in scheduled:
            if tokens == 1:
                decodes += 1
                attention += length
            else:
                prompt += tokens
                attention += tokens * (length - tokens / 2)
        # Attention needs 4 operations for each layer, unit of width and pair of tokens.
        gpu = prompt / self.prompt_tokens_per_second
        gpu += 4 * _MODEL.layers * _MODEL.width * attention / (989e12 * 0.4)
        gpu += 0.007 if self.overlaps else 0.0
        return max(self.launch_seconds, gpu) if self.overlaps else self.launch_seconds + gpu
