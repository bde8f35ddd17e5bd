"""The models that the engines serve, and the load sizes for each model."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from bench.end_to_end.model import word_tokenizer

MODEL: Final = "bench"
"""Name of the model in requests."""


@dataclass(frozen=True, slots=True)
class LoadSizes:
    """Sizes of the default group's loads.

    Attributes:
        prefix: the number of tokens that all prompts of one quiet tenant begin with.
        own: the number of tokens after the prefix, which differ in each prompt.
        answer: the tokens of each answer to a quiet tenant.
        tenant_rate: the requests per second of each quiet tenant, which arrive as a Poisson process.
        flood_prompt: the tokens of each prompt of a flooding tenant; all prompts are distinct.
        flood_answer: the tokens of each answer to a flooding tenant.
        flood_at_once: the number of concurrent requests of all flooding tenants.
        target_seconds: the latency target for the time between two tokens, for tenants with a target.
        warm_seconds: the time from the start of a flood to the start of the window.
        solo_warm_seconds: the time from the start of a load without a flood to the start of the window.
        window_seconds: the length of the window of each arm of the noisy-neighbour phase.
        reclaim_prompts: the number of prompts that claim the reservation, each as long as a prompt of the flood.
        reclaim_warm_seconds: the time from the start of the flood until the reservation is claimed.
        equal_answers: the number of answers compared in each case of the equality phase.
        equal_prompt, equal_answer: the tokens of each prompt and answer of the equality phase.
        preempted_answers: the number of requests to preempt while they generate.
        preempted_answer: the tokens of each preempted answer.
        throughput_prompt, throughput_answer: the tokens of each prompt and answer of the throughput phase.
        throughput_warm_seconds: the time from the start of a throughput load to the start of its window.
        throughput_seconds: the length of the window, by the number of concurrent requests.
        scheduler_steps: the number of scheduler steps that are timed without a model.
    """

    prefix: int = 512
    own: int = 128
    answer: int = 32
    tenant_rate: float = 3.0
    flood_prompt: int = 4000
    flood_answer: int = 128
    flood_at_once: int = 96
    target_seconds: float = 0.04
    warm_seconds: float = 4.0
    window_seconds: float = 9.0
    solo_warm_seconds: float = 1.0
    reclaim_prompts: int = 9
    reclaim_warm_seconds: float = 4.5
    equal_answers: int = 10
    equal_prompt: int = 1500
    equal_answer: int = 16
    preempted_answers: int = 4
    preempted_answer: int = 128
    throughput_prompt: int = 64
    throughput_answer: int = 128
    throughput_warm_seconds: float = 1.0
    throughput_seconds: Mapping[int, float] = field(
        default_factory=lambda: MappingProxyType({1: 2.0, 32: 2.5, 256: 3.5})
    )
    scheduler_steps: int = 1500


@dataclass(frozen=True, slots=True)
class Shape:
    """A model, the pool that it is served with, and the loads for it.

    Attributes:
        name: the value of ``--shape``, or the folder of ``--model``.
        weights: ``real`` if weights are read from files, ``dummy`` if vLLM makes them up.
        config: the content of the model's ``config.json``.
        blocks: the number of blocks in the pool.
        block_tokens: the number of tokens in a block.
        seats: the maximum number of requests that run at once.
        longest: the maximum tokens of a prompt and its answer together.
        cpu_tier: the size of the memory tier, in the format of ``--cpu-tier``.
        load: the sizes of the default group's loads.
        tenants: the number of tenants in the throughput phase with many tenants.
        on_gpu: whether the engines run on a GPU rather than on CPUs.
    """

    name: str
    weights: Literal["dummy", "real"]
    config: Mapping[str, Any]
    blocks: int = 6144
    block_tokens: int = 16
    seats: int = 256
    longest: int = 8192
    cpu_tier: str = "4GiB"
    load: LoadSizes = LoadSizes()
    tenants: int = 1000
    on_gpu: bool = True

    @property
    def vocabulary(self) -> int:
        """Number of tokens in the model's vocabulary."""
        return int(self.config["vocab_size"])

    @property
    def cache_bytes(self) -> int:
        """Size of the KV cache in bytes, with two bytes for each key and value."""
        heads = self.config.get("num_key_value_heads", self.config["num_attention_heads"])
        width = self.config.get("head_dim") or self.config["hidden_size"] // self.config["num_attention_heads"]
        token = 2 * 2 * self.config["num_hidden_layers"] * heads * width
        return self.blocks * self.block_tokens * int(token)


_DUMMY_WEIGHT: Final = 1e-3 / math.sqrt(3)
"""Standard deviation of vLLM's dummy weights, including the weights of norms."""
_SPREAD: Final = 4.0
"""Standard deviation of scores and logits at which an answer depends on its whole prompt, as with trained weights."""


def _config(*, hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, words: int) -> Mapping[str, Any]:
    """Returns the config of a Llama-like model whose answers depend on the KV cache even with dummy weights.

    Dummy weights are so small that each layer of a Llama adds next to nothing. The answer would depend on the last
    token only, so a wrong cache would not change it. Granite has the same layers as Llama, with multipliers that
    compensate for the small weights.
    """
    projected = math.sqrt(hidden) * _DUMMY_WEIGHT**2
    attended = math.sqrt(hidden) * _DUMMY_WEIGHT * projected
    return {
        "architectures": ["GraniteForCausalLM"],
        "model_type": "granite",
        "vocab_size": words,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "embedding_multiplier": 1 / _DUMMY_WEIGHT,
        "attention_multiplier": _SPREAD / (math.sqrt(hidden / heads) * projected**2),
        "residual_multiplier": 1 / (attended * math.sqrt(layers)),
        "logits_scaling": projected / _SPREAD,
    }


_NANO_LOAD: Final = LoadSizes(
    prefix=64,
    own=32,
    answer=8,
    tenant_rate=1.0,
    flood_prompt=256,
    flood_answer=16,
    flood_at_once=20,
    target_seconds=0.3,
    warm_seconds=0.5,
    window_seconds=1.2,
    solo_warm_seconds=0.3,
    reclaim_prompts=3,
    reclaim_warm_seconds=0.7,
    equal_answers=3,
    equal_prompt=200,
    equal_answer=8,
    preempted_answers=3,
    preempted_answer=64,
    throughput_prompt=32,
    throughput_answer=16,
    throughput_warm_seconds=0.4,
    throughput_seconds=MappingProxyType({1: 0.5, 32: 0.8, 256: 2.0}),
    scheduler_steps=200,
)

SHAPES: Final[Mapping[str, Shape]] = {
    "8b": Shape(
        "8b",
        "dummy",
        _config(hidden=4096, intermediate=14_336, layers=32, heads=32, kv_heads=8, words=32_000),
    ),
    "1b": Shape(
        "1b",
        "dummy",
        _config(hidden=2048, intermediate=8192, layers=16, heads=16, kv_heads=8, words=32_000),
    ),
    "tiny": Shape(
        "tiny",
        "dummy",
        _config(hidden=1024, intermediate=2816, layers=4, heads=8, kv_heads=4, words=32_000),
    ),
    "nano": Shape(
        "nano",
        "dummy",
        _config(hidden=128, intermediate=256, layers=2, heads=4, kv_heads=2, words=4096),
        blocks=128,
        block_tokens=32,
        seats=32,
        longest=1024,
        cpu_tier="64MiB",
        load=_NANO_LOAD,
    ),
}
"""Shapes by name."""


class ModelError(Exception):
    """A folder has no model that the bench can measure; the message gives the reason and what to pass instead."""


def write_model(shape: Shape, folder: Path) -> None:
    """Write a shape's ``config.json`` and a tokenizer whose tokens are words; the engines make dummy weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(shape.config), indent=1))
    word_tokenizer(shape.vocabulary).save_pretrained(folder)


_NEEDED_FIELDS: Final = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
"""Required fields of a model's config; multimodal models have them in a nested section."""


def shape_of_model(folder: Path, *, on_gpu: bool) -> Shape:
    """Returns the shape of a model with real weights.

    Args:
        folder: a folder with ``config.json``, tokenizer and weights.
        on_gpu: whether the engines run on a GPU; on CPUs the shape has the loads of nano.

    Raises:
        ModelError: the folder has no usable ``config.json``.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read, give a folder with config.json and weights: {error}") from None
    missing = [field for field in _NEEDED_FIELDS if field not in config]
    if missing:
        raise ModelError(f"{path} has no {', '.join(missing)}, give a model for text only")
    sized = SHAPES["8b" if on_gpu else "nano"]
    return replace(sized, name=folder.name, weights="real", config=config, on_gpu=on_gpu)
