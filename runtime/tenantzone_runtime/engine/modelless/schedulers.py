"""A vLLM scheduler, stock or with zones, that runs without a model and generates fake tokens.

The replay uses it to simulate a load in virtual time. A prompt consists of ids instead of text, so hashing a block
costs almost nothing.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.engine.core.scheduling import ZoneAwareScheduler
from tenantzone_runtime.engine.modelless.block_hashes import Hasher
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape, EvictionOrder, Prompt
from tenantzone_runtime.engine.modelless.memory_tier import TierBelow, put_below
from tenantzone_runtime.engine.modelless.stock_orders import change_order
from tenantzone_runtime.seal import SEAL_ARGUMENT, seal

_SEAL_KEY: Final = bytes(32)
"""Key of the seals. It need not be secret, because there are no clients who could forge seals."""
_MODEL: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1 << 24,
    "vocab_size": 128,
    "eos_token_id": 2,
}
_TOKEN: Final = 5


class ModellessScheduler:
    """Sends requests to a scheduler, as the frontend does, and runs its steps, as the engine core does.

    Args:
        shape: the engine's settings.
        folder: an empty folder for the model files that vLLM reads.
        config: the zones, or None for vLLM's stock scheduler.
        priorities: vLLM's priority by tenant. Smaller values are served first. None for first come, first served.
        order: the eviction order of cached blocks. Only applies to a stock scheduler.
        tier_blocks: the number of blocks of the CPU memory tier, or 0 for no tier. Only applies with zones.
        now: returns the time in seconds.
    """

    def __init__(
        self,
        shape: EngineShape,
        folder: Path,
        config: RuntimeConfig | None,
        priorities: Mapping[str, int] | None = None,
        order: EvictionOrder = "lru",
        tier_blocks: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shape = shape
        self._priorities = priorities or {}
        self._priority_of_owner: dict[int, int] = {}
        policy = "fcfs" if priorities is None else "priority"
        self.scheduler = _make_scheduler(shape, folder, policy, zones=config is not None)
        self._has_zones = config is not None
        self._tier: TierBelow | None = None
        if config is not None:
            self.scheduler.apply_config(config)
            if tier_blocks:
                self._tier = TierBelow(config, tier_blocks, shape.blocks, shape.block_tokens, now)
                put_below(self.scheduler, self._tier)
        elif order != "lru":
            change_order(self.scheduler, order, lambda owner: self._priority_of_owner.get(owner, 0))

    def send(
        self, request_id: str, tenant: str, prompt: Prompt, answer_tokens: int, *, arrival: float, owner: int = 0
    ) -> None:
        """Add a request.

        Args:
            request_id: a unique id.
            tenant: the tenant of the request, which sets its zone and its priority.
            prompt: the request's text.
            answer_tokens: the number of tokens to generate.
            arrival: the arrival time, in Unix seconds.
            owner: the owner's number. Requests with equal owners share cached blocks, like equal ``cache_salt`` values.
        """
        priority = self._priority_of_owner[owner] = self._priorities.get(tenant, 0)
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
                priority=priority,
                block_hasher=Hasher(prompt, owner, self.shape.block_tokens),
            )
        )

    def take_loaded_tokens(self) -> int:
        """Returns the number of tokens loaded from the tier since the last call."""
        return 0 if self._tier is None else self._tier.take_loaded_tokens()

    def schedule(self) -> tuple[SchedulerOutput, ModelRunnerOutput]:
        """Run the first half of a step.

        Returns:
            The scheduler's output, and a fake model output with a token for each request that has computed its prompt.
        """
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        requests = self.scheduler.requests
        return output, ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[] if requests[name].is_prefill_chunk else [_TOKEN] for name in names],
        )

    def update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        """Run the second half of a step. Returns the outputs for clients."""
        by_client = self.scheduler.update_from_output(output, result)
        return [item for outputs in by_client.values() for item in outputs.outputs]


def _make_scheduler(shape: EngineShape, folder: Path, policy: str, *, zones: bool) -> Scheduler:
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
            policy=policy,
        ),
    )
    config.cache_config.num_gpu_blocks = shape.blocks + 1
    spec = FullAttentionSpec(block_size=shape.block_tokens, num_kv_heads=2, head_size=32, dtype=torch.float32)
    arguments: dict[str, Any] = {
        "vllm_config": config,
        # One block more, because vLLM reserves a block as the null block.
        "kv_cache_config": KVCacheConfig(
            num_blocks=shape.blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        "structured_output_manager": StructuredOutputManager(config),
        "block_size": shape.block_tokens,
        # Without this, vLLM would not report prefix cache hits.
        "log_stats": True,
    }
    if zones:
        return ZoneAwareScheduler(**arguments, seal_key=_SEAL_KEY)
    return AsyncScheduler(**arguments)
