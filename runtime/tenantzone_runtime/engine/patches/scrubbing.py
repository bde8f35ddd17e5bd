"""Scrubbing: blocks that move to another zone are zeroed by vLLM's mechanism.

vLLM has this mechanism for models that need it: the scheduler lists new blocks, and the workers zero these blocks
before a step uses them. GPU workers prepare for zeroing only when they start, and only for such models. They can't
prepare later, when a zone requests scrubbing, so the engine must be started with scrubbing enabled.

Upstream change that would make this module unnecessary: an option that prepares the workers to zero blocks for every
model.
"""

from typing import Any

from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, KVCacheConfig

from tenantzone_contract.zone_config.config import ConfigError, RuntimeConfig

_needs_zeroing: Any = KVCacheConfig.needs_kv_cache_zeroing


def model_needs_zeroing(caches: KVCacheConfig) -> bool:
    """Returns whether the model itself needs each new block to be zeroed, even without zones."""
    return bool(_needs_zeroing.fget(caches))


def prepare_workers() -> None:
    """Make vLLM's GPU workers prepare for zeroing for any model. Call this in each process before workers start."""
    if not current_platform.is_cpu():
        KVCacheConfig.needs_kv_cache_zeroing = property(lambda caches: True)


def check_scrub(config: RuntimeConfig, caches: KVCacheConfig, *, prepared: bool) -> None:
    """Check that this engine can scrub blocks if a zone requests it.

    Args:
        config: the config of the zones.
        caches: the model's KV cache config.
        prepared: whether the workers were prepared for zeroing.

    Raises:
        ConfigError: a zone requests scrubbing, but the engine was not started with scrubbing enabled, or vLLM's workers
            can't zero the memory of some of the model's layers.
    """
    asking = [zone.name for zone in config.zones if zone.scrub == "OnTransfer"]
    if not asking:
        return
    if not prepared and not current_platform.is_cpu():
        raise ConfigError(
            f"zone {asking[0]}: scrub OnTransfer needs an engine that was started with --scrub-blocks "
            "(TENANTZONE_SCRUB_BLOCKS=1); restart the engine with it, or set scrub to Never"
        )
    zeroed = FullAttentionSpec if current_platform.is_cpu() else AttentionSpec
    for group in caches.kv_cache_groups:
        if not isinstance(group.kv_cache_spec, zeroed):
            raise ConfigError(
                f"zone {asking[0]}: scrub OnTransfer is not supported for this model, because vLLM's workers do not "
                f"zero memory of {type(group.kv_cache_spec).__name__} layers here; set scrub to Never"
            )
