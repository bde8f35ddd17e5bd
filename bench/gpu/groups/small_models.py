"""Small models with random weights, for groups that need a special architecture, on GPUs and on CPUs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from bench.gpu.shapes import Shape

_ON_A_GPU: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        # All GPU attention kernels support this head size.
        "head_dim": 128,
    }
)


def sizes(shape: Shape) -> dict[str, Any]:
    """Returns the config fields whose values depend on the machine: small for CPUs, larger for GPUs."""
    return {"max_position_embeddings": shape.longest, **(_ON_A_GPU if shape.on_gpu else {})}
