"""A scheduler of vLLM's, stock or with zones, without a model: tokens are made up, everything else is real.

What replays a load in virtual time drives this. A prompt is told by ids of its content, so that a block's hash costs
nothing to speak of, and no text is needed.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tenantzone_contract.config import RuntimeConfig
from tenantzone_runtime.engine.engine_shape import EngineShape, Prompt
from tenantzone_runtime.engine.scheduling import ZoneAwareScheduler
from tenantzone_runtime.seal import SEAL_ARGUMENT, seal

_SEAL_KEY: Final = bytes(32)
"""Nobody else is there who could make a seal."""
_MODEL: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1 << 20,
    "vocab_size": 128,
    "eos_token_id": 2,
}
_TOKEN: Final = 5


class ModellessScheduler:
    """Sends requests as the front door would, and runs steps as the engine core would.

    Args:
        shape: of the engine.
        folder: an empty one, for what vLLM reads of a model.
        config: the zones; None: vLLM's own scheduler.
    """

    def __init__(self, shape: EngineShape, folder: Path, config: RuntimeConfig | None) -> None:
        self.shape = shape
        self.scheduler = _make_scheduler(shape, folder, zones=config is not None)
        self._has_zones = config is not None
        if config is not None:
            self.scheduler.apply_config(config)

    def send(
        self, request_id: str, tenant: str, prompt: Prompt, answer_tokens: int, *, arrival: float, owner: int = 0
    ) -> None:
        """Add a request.

        Args:
            request_id: like no other's.
            tenant: whose it is; stock vLLM does not know.
            prompt: its text.
            answer_tokens: it generates so many.
            arrival: when it came, in unix time.
            owner: who finds what it computes again: requests of the same number, as with one ``cache_salt``.
        """
        params = SamplingParams(max_tokens=answer_tokens, ignore_eos=True)
        salt = None
        if self._has_zones:
            salt = tenant
            params.extra_args = {SEAL_ARGUMENT: seal(_SEAL_KEY, tenant, salt)}
        self.scheduler.add_request(
            Request(
                request_id=request_id,
                prompt_token_ids=[_TOKEN] * prompt.tokens,
                sampling_params=params,
                pooling_params=None,
                arrival_time=arrival,
                cache_salt=salt,
                block_hasher=_Hasher(prompt, owner, self.shape.block_tokens),
            )
        )

    def schedule(self) -> tuple[SchedulerOutput, ModelRunnerOutput]:
        """The first half of a step, and what the model would make of it: a token for each whole prompt."""
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        requests = self.scheduler.requests
        return output, ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[] if requests[name].is_prefill_chunk else [_TOKEN] for name in names],
        )

    def update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        """The other half. Returns what is sent to clients."""
        by_client = self.scheduler.update_from_output(output, result)
        return [item for outputs in by_client.values() for item in outputs.outputs]


class _Hasher:
    """Tells the hashes of a request's blocks that are full and have none yet."""

    def __init__(self, prompt: Prompt, owner: int, block_tokens: int) -> None:
        self._prompt = prompt
        self._owner = owner_bytes(owner)
        self._block_tokens = block_tokens

    def __call__(self, request: Request) -> list[BlockHash]:
        begin, end = len(request.block_hashes), request.num_tokens // self._block_tokens
        if begin == end:
            return []
        prompt, owner, size = self._prompt, self._owner, self._block_tokens
        hashes = []
        for index in range(begin, end):
            content, part = prompt.block(index, size)
            hashes.append(BlockHash(owner + content.to_bytes(24, "big", signed=True) + part.to_bytes(4, "big")))
        return hashes


OWNER_BYTES: Final = 4
"""With which a block's hash begins."""


def owner_bytes(owner: int) -> bytes:
    """With which the hashes of an owner's blocks begin."""
    return owner.to_bytes(OWNER_BYTES, "big")


def owners(block_hashes: Iterable[bytes | None]) -> Iterable[int]:
    """Whose blocks these are, of those that have a hash."""
    return (int.from_bytes(each[:OWNER_BYTES], "big") for each in block_hashes if each is not None)


def _make_scheduler(shape: EngineShape, folder: Path, *, zones: bool) -> Scheduler:
    (folder / "config.json").write_text(json.dumps(_MODEL))
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=shape.longest
        ),
        cache_config=CacheConfig(block_size=shape.block_tokens, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=shape.seats,
            max_num_batched_tokens=max(shape.step_tokens, shape.seats),
            max_model_len=shape.longest,
            is_encoder_decoder=False,
        ),
    )
    config.cache_config.num_gpu_blocks = shape.blocks + 1
    spec = FullAttentionSpec(block_size=shape.block_tokens, num_kv_heads=2, head_size=32, dtype=torch.float32)
    arguments: dict[str, Any] = {
        "vllm_config": config,
        # vLLM keeps one block for itself.
        "kv_cache_config": KVCacheConfig(
            num_blocks=shape.blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        "structured_output_manager": StructuredOutputManager(config),
        "block_size": shape.block_tokens,
        # Off, vLLM would not say what it found in the cache.
        "log_stats": True,
    }
    if zones:
        return ZoneAwareScheduler(**arguments, seal_key=_SEAL_KEY)
    return AsyncScheduler(**arguments)
