"""Predicts the time of a step from published figures, by a roofline model, without access to the hardware.

A step reads all weights and the KV cache of its requests, and computes two operations for each parameter and token,
plus the operations of attention. The time of the step is the reading time or the computing time, whichever is longer
(Williams et al., "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009),
plus a fixed overhead. No figure in this module is a measurement of ours.

Sources:

- H100 SXM: 3.35 TB/s of memory bandwidth, 80 GB, and 1,979 TFLOPS of bfloat16 with sparsity, half of it without
  sparsity: "NVIDIA H100 Tensor Core GPU", https://www.nvidia.com/en-us/data-center/h100/. Its PCIe Gen5 interface has
  128 GB/s, that is, 64 GB/s in each direction. We assume an efficiency of 0.8 for the interface.
- Llama 3.1 8B and 70B, 8.03 and 70.6 billion parameters: the model cards, https://huggingface.co/meta-llama; layers,
  width and key-value heads: "The Llama 3 Herd of Models", table 3, https://arxiv.org/abs/2407.21783
- The efficiencies are assumptions: 0.4 of the peak operations per second, as "The Llama 3 Herd of Models" reports for
  training (38 to 43 % of the peak in bfloat16, table 4), and 0.7 of the peak memory bandwidth. The fixed overhead of
  1 ms per step is also an assumption.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, Self

_BYTES = 2
"""Size in bytes of a parameter and of a number in the KV cache. Both are bfloat16."""
_USED_MEMORY = 0.9
"""Fraction of each GPU's memory that the engine uses, as with vLLM's ``--gpu-memory-utilization 0.9``."""


class Hardware(Protocol):
    """Predicts the time of a step for a model on some hardware, from published figures or from measurements."""

    @property
    def title(self) -> str:
        """Name of the model and the hardware, for output."""

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prefill speed in tokens per second, for prompts so short that the cost of attention is negligible."""

    @property
    def cache_bytes_per_token(self) -> int:
        """Size of a token's keys and values in all layers, in bytes, or 0 if unknown."""

    @property
    def gpu_count(self) -> int:
        """Number of GPUs that compute each step together."""

    @property
    def outside_seconds(self) -> float:
        """Part of the time to first token that passes outside the engine's steps, in seconds."""

    def blocks(self, block_tokens: int) -> int:
        """Returns how many blocks fit in memory in addition to the weights."""

    def step_seconds(self, scheduled: Iterable[tuple[int, int]]) -> float:
        """Returns how long one step takes, in seconds.

        Args:
            scheduled: for each request in the step, the number of tokens to compute, and the length of the request
                including these tokens.
        """

    def load_seconds(self, tokens: int) -> float:
        """Returns how long it takes to load the keys and values of ``tokens`` tokens from host memory, in seconds."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs that compute each step together by tensor parallelism. The defaults describe the H100 SXM."""

    count: int
    bytes_per_second: float = 3.35e12
    """Peak memory bandwidth of one GPU. The next two fields are also for one GPU."""
    operations_per_second: float = 989e12
    memory_bytes: float = 80e9
    bandwidth_efficiency: float = 0.7
    compute_efficiency: float = 0.4
    step_overhead_seconds: float = 1e-3
    host_bytes_per_second: float = 64e9
    """Peak bandwidth from host memory to one GPU."""
    host_efficiency: float = 0.8


@dataclass(frozen=True, slots=True)
class Transformer:
    """The properties of a model that determine the time of a step."""

    name: str
    parameters: float
    layers: int
    width: int
    key_value_heads: int
    head_width: int
    gpus: Gpus

    @property
    def title(self) -> str:
        return f"{self.name} on {self.gpus.count} H100"

    def on(self, gpus: int) -> Self:
        """Returns a copy of the model on ``gpus`` GPUs."""
        return replace(self, gpus=replace(self.gpus, count=gpus))

    @property
    def gpu_count(self) -> int:
        return self.gpus.count

    @property
    def outside_seconds(self) -> float:
        return 0.0

    @property
    def prompt_tokens_per_second(self) -> float:
        gpus = self.gpus
        return gpus.count * gpus.operations_per_second * gpus.compute_efficiency / (2 * self.parameters)

    @property
    def cache_bytes_per_token(self) -> int:
        """Size of a token's keys and values in all layers, in bytes."""
        return 2 * self.layers * self.key_value_heads * self.head_width * _BYTES

    def blocks(self, block_tokens: int) -> int:
        """Returns how many blocks fit in memory in addition to the weights."""
        left = self.gpus.count * self.gpus.memory_bytes * _USED_MEMORY - self.parameters * _BYTES
        return int(left // (block_tokens * self.cache_bytes_per_token))

    def step_seconds(self, scheduled: Iterable[tuple[int, int]]) -> float:
        """Returns how long one step takes, in seconds.

        Args:
            scheduled: for each request in the step, the number of tokens to compute, and the length of the request
                including these tokens.
        """
        gpus = self.gpus
        operations, bytes_read = 0.0, self.parameters * _BYTES
        for tokens, context in scheduled:
            # Each token attends to all earlier tokens, on average to the context minus half of the scheduled tokens.
            attended = tokens * (context - tokens / 2)
            operations += 2 * self.parameters * tokens + 4 * self.layers * self.width * attended
            bytes_read += context * self.cache_bytes_per_token
        computing = operations / (gpus.count * gpus.operations_per_second * gpus.compute_efficiency)
        reading = bytes_read / (gpus.count * gpus.bytes_per_second * gpus.bandwidth_efficiency)
        return max(computing, reading) + gpus.step_overhead_seconds

    def load_seconds(self, tokens: int) -> float:
        gpus = self.gpus
        bytes_per_second = gpus.count * gpus.host_bytes_per_second * gpus.host_efficiency
        return tokens * self.cache_bytes_per_token / bytes_per_second


MODELS = {
    "8b": Transformer("Llama 3.1 8B", 8.03e9, 32, 4096, 8, 128, Gpus(1)),
    "70b": Transformer("Llama 3.1 70B", 70.6e9, 80, 8192, 8, 128, Gpus(4)),
}
