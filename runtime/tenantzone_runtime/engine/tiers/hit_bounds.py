"""Which chunks a hit needs, and how many chunks a zone may transfer at once, for a model's KV cache groups."""

from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.kv_offload.config import OffloadingConfig

from tenantzone_runtime.engine.tiers.offloading_spec import BOUNDS
from tenantzone_runtime.engine.versions import window_in_chunks
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tenantzone_runtime.zones.tiers.tier import TransferBounds


def shape_of(config: OffloadingConfig, caches: KVCacheConfig) -> HitShape:
    """Returns which chunks of each KV cache group a hit needs."""
    tokens = config.groups[0].tokens_per_block * config.cache.blocks_per_chunk
    if len(config.groups) == 1:
        return HitShape(tokens, (None,))
    specs = [caches.kv_cache_groups[group.group_id].kv_cache_spec for group in config.groups]
    return HitShape(tokens, tuple(window_in_chunks(spec, tokens) for spec in specs))


def bounds_of(vllm_config: VllmConfig, config: OffloadingConfig) -> TransferBounds:
    """Returns the maximum number of chunks that a zone may transfer at once to or from CPU memory.

    If there are several KV cache groups, the bound allows all chunks of the longest prompt or of four steps, whichever
    has more tokens.
    """
    groups = config.groups
    if len(groups) == 1:
        return BOUNDS
    tokens = max(vllm_config.model_config.max_model_len, 4 * vllm_config.scheduler_config.max_num_batched_tokens)
    chunks = len(groups) * -(-tokens // groups[0].tokens_per_block)
    return TransferBounds(max(chunks, BOUNDS.stores), max(chunks, BOUNDS.loads))
