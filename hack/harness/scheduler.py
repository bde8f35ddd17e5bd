"""vLLM's real scheduler, cache manager and block pool without a model: tokens are made up, everything else is real."""

import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from itertools import chain
from math import lcm
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from hack.harness.kv_caches import BLOCK_TOKENS, caches
from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.core.scheduling import ZoneAwareScheduler
from tenantzone_runtime.engine.core.served_scheduler import ServedScheduler
from tenantzone_runtime.engine.patches.media.media_names import owner_in
from tenantzone_runtime.frontend.binding import bind
from tenantzone_runtime.seal import SEAL_ARGUMENT
from tenantzone_runtime.zones.model.zone import Zone

SEAL_KEY = b"k" * 32
SALT_KEY = b"s" * 32
EOS = 2

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "vocab_size": 128,
    "eos_token_id": EOS,
}


def vllm_config(folder: Path, *, sequences: int = 64, max_batched_tokens: int = 1024) -> VllmConfig:
    """VLLM's config of a small model that has no weights."""
    (folder / "config.json").write_text(json.dumps(MODEL))
    config = VllmConfig(
        model_config=ModelConfig(model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=4096),
        cache_config=CacheConfig(block_size=BLOCK_TOKENS, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=sequences,
            max_num_batched_tokens=max_batched_tokens,
            max_model_len=4096,
            is_encoder_decoder=False,
        ),
    )
    # Only the scheduler runs. It is the same on a GPU, and zones refuse what fails in vLLM's kernels for CPUs.
    config.device_config.device_type = "cuda"
    return config


def with_flags(config: VllmConfig, **scheduling: Any) -> VllmConfig:
    """Returns the same config with other arguments of the scheduler.

    A shallow copy: to make and check a whole config takes a thousand times as long as to make a scheduler.
    """
    config = copy(config)
    config.scheduler_config = copy(config.scheduler_config)
    for name, value in scheduling.items():
        assert hasattr(config.scheduler_config, name), name
        setattr(config.scheduler_config, name, value)
    return config


def with_drafts(config: VllmConfig, method: str, tokens: int) -> VllmConfig:
    """Returns the config of the same engine that drafts ``tokens`` tokens at a time, by one of vLLM's methods.

    The scheduler only knows how many slots a method needs; a `Driver` makes up the drafts.
    """
    config = copy(config)
    config.speculative_config = SpeculativeConfig(model="ngram", num_speculative_tokens=tokens)
    config.speculative_config.method = method
    # With several modules, which draft one token each, multi-token prediction needs a longer look ahead.
    shape = SimpleNamespace(num_nextn_predict_layers=tokens, model_type="llama")
    config.speculative_config.draft_model_config = SimpleNamespace(hf_config=shape)
    return config


def without_prefix_caching(config: VllmConfig) -> VllmConfig:
    """Returns the config of the same engine without prefix caching."""
    config = copy(config)
    config.cache_config = copy(config.cache_config)
    config.cache_config.enable_prefix_caching = False
    return config


def make_scheduler(
    config: VllmConfig,
    capacity: int,
    *,
    zones: bool = True,
    window: int | None = None,
    kinds: Sequence[str] = (),
) -> Scheduler:
    """A scheduler with ``capacity`` usable blocks; with ``zones`` ours, else vLLM's."""
    kv_caches = caches(capacity + 1, window, kinds, config)
    if kinds and config.kv_transfer_config is not None:
        # As in vLLM: one flag controls both blocks that are released and blocks that are cached.
        kv_caches.prefix_cache_retention_interval = config.cache_config.prefix_cache_retention_interval
    states = [group.kv_cache_spec for group in kv_caches.kv_cache_groups if isinstance(group.kv_cache_spec, MambaSpec)]
    if states:
        # As in vLLM: states are kept at the ends of the blocks of attention.
        config = copy(config)
        config.cache_config = copy(config.cache_config)
        config.cache_config.mamba_cache_mode = states[0].mamba_cache_mode
        if states[0].mamba_cache_mode == "none":
            config = without_prefix_caching(config)
        else:
            config.cache_config.block_size = states[0].block_size
    config.cache_config.num_gpu_blocks = capacity + 1
    arguments = {
        "vllm_config": config,
        "kv_cache_config": kv_caches,
        "structured_output_manager": StructuredOutputManager(config),
        "block_size": lcm(*(group.kv_cache_spec.block_size for group in kv_caches.kv_cache_groups)),
        "hash_block_size": BLOCK_TOKENS,
        "log_stats": True,
    }
    if zones:
        return ZoneAwareScheduler(**arguments, seal_key=SEAL_KEY)
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    return AsyncScheduler(**arguments)


def give_encoder(scheduler: Scheduler, *, budget: int, cache: int) -> None:
    """Let the scheduler take images, as for a model that has an encoder.

    Args:
        scheduler: that has had nothing to do yet.
        budget: embeddings that a step may make.
        cache: embeddings that the encoder cache holds.
    """
    scheduler.max_num_encoder_input_tokens = budget
    scheduler.encoder_cache_manager.__init__(cache)


class Driver:
    """Sends requests as the frontend does, and runs steps as the engine core does."""

    def __init__(self, scheduler: Scheduler, *, salt_key: bytes = SALT_KEY, hash_algorithm: str = "sha256") -> None:
        self.scheduler = scheduler
        self.salt_key = salt_key
        """The frontend's salt key."""
        self.finished: dict[str, str] = {}
        """Request id → how it finished."""
        self.stop_reasons: dict[str, int | str | None] = {}
        """Request id → what its last output says of why it stopped."""
        self.drafts: Callable[[int], int] = lambda most: most
        """Returns how many tokens are drafted of at most this many, and how many of the drafted tokens are right."""
        self.copy: Callable[[SchedulerOutput], Any] = lambda output: None
        """Returns what the workers report about copies from and to tiers in a step."""
        self._cached_tokens: dict[str, int] = {}
        self._ids = itertools.count()
        self._generation = itertools.count(1)
        hash_function = get_hash_fn_by_name(hash_algorithm)
        init_none_hash(hash_function)
        # Since 0.33 a block's hash may cover tokens after it.
        ahead = getattr(scheduler, "num_hash_lookahead_tokens", 0)
        self._hasher = get_request_block_hasher(BLOCK_TOKENS, hash_function, *([ahead] if ahead else []))

    @property
    def served(self) -> ServedScheduler:
        """The scheduler as housekeeping sees it."""
        return ServedScheduler(self.scheduler)

    def declare(self, *zones: ZoneConfig, **pool: Any) -> RuntimeConfig:
        """Applies a config with the zones."""
        config = make_config(next(self._generation), PoolConfig(namespace="test", name="pool", **pool), zones)
        self.scheduler.apply_config(config)
        return config

    def zone(self, tenant: str) -> Zone:
        """The tenant's zone in the ledger."""
        zone: Zone = self.scheduler.block_pool.ledger.zones[tenant]
        return zone

    def send(
        self,
        tenant: str | None,
        tokens: list[int],
        *,
        max_tokens: int = 1,
        client_salt: str = "",
        sealed: str | None = None,
        resumable: bool = False,
        arrival_time: float | None = None,
        priority: int = 0,
        prompt_logprobs: bool = False,
        grammar: Future[Any] | None = None,
        user: str = "",
        images: Sequence[tuple[str, int, int]] = (),
        foreign_images: bool = False,
        adapter: LoRARequest | None = None,
        pooling: bool = False,
    ) -> Request:
        """Add a request; without a tenant as if it had bypassed the frontend.

        ``sealed`` is a seal in place of the one that the frontend would make; ``arrival_time`` is the API server's,
        None: now. With ``grammar`` the answer is structured, by the result of the future: :class:`AnyToken`, or an
        exception if it does not compile. ``user`` is the digest of the tenant's user who sends it.
        ``images`` are each image's name, first token and number of tokens; ``foreign_images``: with names that are not
        the tenant's. ``adapter``: the requested LoRA adapter; its workers are not there.
        ``pooling``: the request is for numbers and not for text.
        """
        params = SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=True,
            prompt_logprobs=1 if prompt_logprobs else None,
            structured_outputs=None if grammar is None else StructuredOutputsParams(json_object=True),
        )
        salt: str | None = client_salt or None
        if tenant is not None:
            asked = {"cache_salt": salt}
            body = json.loads(bind(json.dumps(asked).encode(), asked, SEAL_KEY, self.salt_key, tenant, user))
            salt, params.extra_args = body["cache_salt"], body["vllm_xargs"]
            if sealed is not None:
                params.extra_args = {SEAL_ARGUMENT: sealed}
        request = Request(
            request_id=f"{tenant}-{next(self._ids)}",
            prompt_token_ids=tokens,
            sampling_params=None if pooling else params,
            lora_request=adapter,
            pooling_params=PoolingParams(task="embed", extra_kwargs=params.extra_args) if pooling else None,
            cache_salt=salt,
            block_hasher=self._hasher,
            resumable=resumable,
            arrival_time=arrival_time,
            priority=priority,
            mm_features=[
                _image("" if foreign_images or salt is None else owner_in(salt), name, PlaceholderRange(offset, length))
                for name, offset, length in images
            ],
        )
        if grammar is not None:
            # As the engine core does when it takes the request in: compilation has begun before the scheduler sees it.
            request.structured_output_request.grammar = grammar
        self.scheduler.add_request(request)
        return request

    def step(self) -> list[str]:
        """Run one step; scheduled requests with a complete prompt get a token, and drafts. Returns the scheduled."""
        output, result = self.schedule()
        self.update(output, result)
        self.draft(output)
        scheduled: list[str] = result.req_ids
        return scheduled

    def schedule(self) -> tuple[SchedulerOutput, ModelRunnerOutput]:
        """Run the first half of a step; returns its output, and the model's result."""
        output = self.scheduler.schedule()
        scheduled = list(output.num_scheduled_tokens)
        drafted = output.scheduled_spec_decode_tokens
        requests = self.scheduler.requests
        sampled = [
            []
            if requests[name].is_prefill_chunk or requests[name].pooling_params
            else [5] * (1 + self.drafts(len(drafted.get(name, ()))))
            for name in scheduled
        ]
        result = ModelRunnerOutput(
            req_ids=scheduled,
            req_id_to_index={name: index for index, name in enumerate(scheduled)},
            sampled_token_ids=sampled,
            pooler_output=[
                torch.zeros(2) if requests[name].pooling_params and not requests[name].is_prefill_chunk else None
                for name in scheduled
            ],
            kv_connector_output=self.copy(output),
        )
        return output, result

    def update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        """Run the second half; with async scheduling, after the next step's first half. Returns what is sent."""
        items = []
        for outputs in self.scheduler.update_from_output(output, result).values():
            items += outputs.outputs
            for item in outputs.outputs:
                if item.prefill_stats is not None:
                    self._cached_tokens[item.request_id] = item.prefill_stats.num_cached_tokens
                if item.finish_reason is not None:
                    self.finished[item.request_id] = str(item.finish_reason)
                    self.stop_reasons[item.request_id] = item.stop_reason
        return items

    def draft(self, output: SchedulerOutput) -> None:
        """Draft what comes after a step that has ended, as the engine core does where one step follows the other."""
        if self.scheduler.num_spec_tokens:
            names = list(output.num_scheduled_tokens)
            drafted = [[7] * self.drafts(output.num_spec_tokens_to_schedule) for _ in names]
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, drafted))

    def run(self, max_steps: int = 500) -> None:
        """Step until no request is left."""
        for _ in range(max_steps):
            if not self.scheduler.has_unfinished_requests():
                self.check()
                return
            self.step()
            self.check()
        raise AssertionError(f"requests are left after {max_steps} steps")

    def ask(self, tenant: str | None, tokens: list[int], **arguments: Any) -> Request:
        """Send a request and run until all are done."""
        request = self.send(tenant, tokens, **arguments)
        self.run()
        return request

    def cached_tokens(self, request: Request) -> int:
        """Prompt tokens that were found in the cache when the request was first admitted."""
        return self._cached_tokens[request.request_id]

    def check(self) -> None:
        """I1, in tiers, too, and that each zone's counts are what the request's block tables say."""
        pool = getattr(self.scheduler, "block_pool", None)
        if pool is None:
            return
        with self.scheduler.zone_lock:
            self._check(pool)

    def _check(self, pool: ZoneBlockPool) -> None:
        manager = self.scheduler.kv_cache_manager
        if pool.zones:
            pool.ledger.check(pool.free_block_queue.num_free_blocks, pool.capacity)
        assert len(self.scheduler.waiting) == sum(1 for _ in self.scheduler.waiting), (
            "requests that wait are miscounted"
        )
        for name, request in self.scheduler.requests.items():
            for block in chain.from_iterable(manager.get_blocks(name).blocks):
                owner = pool.ledger.owner[block.block_id]
                assert block.is_null or owner is getattr(request, "zone", None), "I4: a foreign block"
        for served in self.scheduler.tiers.served:
            served.tier.check()
        for zone in pool.ledger.zones.values():
            assert zone.leaving or zone.held <= max(zone.spec.quota.limit, zone.in_use), "I3: over its limit"


def _image(owner: str, name: str, place: PlaceholderRange) -> MultiModalFeatureSpec:
    return MultiModalFeatureSpec(
        data=None, modality="image", identifier=owner + name, mm_position=place, mm_hash=owner + name
    )


class AnyToken:
    """A grammar by which every answer is right."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def is_terminated(self) -> bool:
        return False


def compiled() -> Future[AnyToken]:
    """A grammar that is ready at once."""
    grammar: Future[AnyToken] = Future()
    grammar.set_result(AnyToken())
    return grammar


_distinct = itertools.count()


def prompt(blocks: int, seed: int | None = None, extra: int = 1) -> list[int]:
    """Returns a prompt of ``blocks`` full blocks and ``extra`` tokens: equal for equal seeds, new without a seed."""
    number = next(_distinct) + 1_000_000 if seed is None else seed
    head = [3 + (number >> shift) % 100 for shift in (0, 6, 12, 18)]
    return (head + [7 + number % 90] * (blocks * BLOCK_TOKENS + extra))[: blocks * BLOCK_TOKENS + extra]
