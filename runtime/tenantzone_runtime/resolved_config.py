"""Functions that find unsupported features in vLLM's resolved configuration and in its configuration of KV caches."""

from typing import Any, Final

from tenantzone_runtime.offloading_flags import CHUNK_SIZES, is_ours


def has_tiers(config: Any) -> bool:
    """Returns whether the engine has tiers below GPU memory."""
    return config.kv_transfer_config is not None and is_ours(config.kv_transfer_config)


_COUNTED: Final = (
    "FullAttentionSpec",
    "MLAAttentionSpec",
    "SlidingWindowSpec",
    "SlidingWindowMLASpec",
    "ChunkedLocalAttentionSpec",
    "MambaSpec",
)
"""Names of vLLM's classes for the kinds of KV caches that a model with zones may combine."""


def is_counted(group: Any) -> bool:
    """Returns whether zones can count the blocks of a group of KV caches."""
    caches = group.kv_cache_spec
    has_part_of_its_own = getattr(group, "role", "default") != "default" or getattr(group, "host_resident", False)
    return type(caches).__name__ in _COUNTED and caches.prefix_cacheable and not has_part_of_its_own


_IN_TIERS_TOGETHER: Final = frozenset(("FullAttentionSpec", "SlidingWindowSpec", "MambaSpec"))
"""Names of vLLM's classes for the kinds of KV caches that a model with tiers may combine."""


def has_groups_in_tiers(config: Any, caches: Any) -> bool:
    """Returns whether an engine has tiers, and its model has several groups of KV caches."""
    return has_tiers(config) and len(caches.kv_cache_groups) > 1


def go_in_tiers(caches: Any) -> bool:
    """Returns whether tiers support a model's groups of KV caches: one group of attention, or a supported combination.

    In a combination, cached data must end at block boundaries, and the boundaries must be the same in all groups.
    """
    specs = [group.kv_cache_spec for group in caches.kv_cache_groups]
    kinds = {type(spec).__name__ for spec in specs}
    if len(specs) == 1:
        return "MambaSpec" not in kinds
    are_states_at_ends = all(getattr(spec, "mamba_cache_mode", "align") == "align" for spec in specs)
    have_same_ends = len({spec.block_size for spec in specs}) == 1
    return {"FullAttentionSpec"} <= kinds <= _IN_TIERS_TOGETHER and have_same_ends and are_states_at_ends


def keeps_states_at_ends(spec: Any) -> bool:
    """Returns whether a KV cache has recurrent states, and keeps one state at the end of each block."""
    return type(spec).__name__ == "MambaSpec" and bool(spec.mamba_cache_mode == "align")


_SEES_ALL: Final = frozenset(("FullAttentionSpec", "MLAAttentionSpec"))
"""Names of vLLM's classes for KV caches in which a request keeps all its blocks until it ends."""


def fills_chunks(caches: Any) -> bool:
    """Returns whether a request still has all blocks of a chunk of several blocks when it stores the chunk."""
    kinds = [type(group.kv_cache_spec).__name__ for group in caches.kv_cache_groups]
    return len(kinds) == 1 and kinds[0] in _SEES_ALL


def moves_more_than_blocks(config: Any) -> bool:
    """Returns whether the connector is configured with a chunk size that may be several blocks."""
    extra = config.kv_transfer_config.kv_connector_extra_config
    return any(extra.get(name) is not None for name in CHUNK_SIZES)


def keeps_other_ends(config: Any) -> bool:
    """Returns whether some cache hits end neither at a prompt's last block nor where two prompts diverge."""
    caches = config.cache_config
    interval = getattr(caches, "prefix_cache_retention_interval", None)
    ends_in_blocks = getattr(caches, "prefix_match_unit", None) is not None
    return interval != 0 or ends_in_blocks or config.speculative_config is not None


def shares_an_api_server(parallel: Any) -> bool:
    """Returns whether several data-parallel ranks share one API server.

    For a dense model, vLLM makes each rank an independent engine, whose configuration has the rank's index, but not the
    number of ranks.
    """
    if parallel.data_parallel_size > 1:
        return not parallel.data_parallel_external_lb
    return bool(getattr(parallel, "data_parallel_index", 0))
