"""The KV caches of models of each kind, without a model."""

from collections.abc import Sequence

import vllm
from packaging.version import Version
from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

BLOCK_TOKENS = 16

_ALL_KINDS = (
    (),
    ("full", "window"),
    ("window", "full", "window"),
    ("full", "chunks"),
    ("latent", "window"),
    ("full", "wide"),
    ("wide", "window"),
    ("full", "mamba align"),
    ("wide", "mamba align wide"),
    ("full", "mamba all"),
    ("full", "window", "mamba align"),
    ("full", "mamba none", "mamba none"),
)
"""Of the layers of models: a group of KV caches for each. None: one group of full attention.

Blocks of "wide" ones have twice as many tokens. Mamba's are named after vLLM's ways to keep its states; "none" is for
engines without prefix caching, and the others are for engines with it."""

KEEPS_ALL_STATES = Version(vllm.__version__) < Version("0.33.dev0")
"""Whether vLLM has Mamba's mode "all": 0.33 caches states in the mode "align" only."""
KINDS = tuple(kinds for kinds in _ALL_KINDS if KEEPS_ALL_STATES or "mamba all" not in kinds)


def caches(
    blocks: int, window: int | None = None, kinds: Sequence[str] = (), config: VllmConfig | None = None
) -> KVCacheConfig:
    """Returns a config with ``blocks`` blocks.

    Args:
        blocks: among them vLLM's null block.
        window: how many tokens back layers of the kinds "window" and "chunks" see.
        kinds: as in `KINDS`. None: one group, which sees a window if one is given.
        config: of the engine, for layers with states.
    """
    specs = [_spec(kind, window, config) for kind in kinds or ("full" if window is None else "window",)]
    groups = [KVCacheGroupSpec([f"layer {number}"], spec) for number, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups)


def _spec(kind: str, window: int | None, config: VllmConfig | None) -> KVCacheSpec:
    import torch

    kind, _, mode = kind.partition(" ")
    shape = {"block_size": BLOCK_TOKENS, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
    match kind:
        case "full":
            return FullAttentionSpec(**shape)
        case "wide":
            return FullAttentionSpec(**shape | {"block_size": 2 * BLOCK_TOKENS})
        case "latent":
            return MLAAttentionSpec(**shape | {"num_kv_heads": 1})
        case "window":
            return SlidingWindowSpec(**shape, sliding_window=window)
        case "chunks":
            return ChunkedLocalAttentionSpec(**shape, attention_chunk_size=window)
        case "mamba":
            assert config is not None
            mode, _, more = mode.partition(" ")
            tokens = (
                BLOCK_TOKENS * (2 if more == "wide" else 1) if mode != "none" else config.model_config.max_model_len
            )
            # States within a prompt's step, as Mamba2's layers keep them.
            is_kept = more == "checkpoints"
            drafted = 0 if config.speculative_config is None else config.speculative_config.num_speculative_tokens
            return MambaSpec(
                block_size=tokens,
                shapes=((2, 64),),
                dtypes=(torch.float32,),
                mamba_cache_mode=mode,
                num_speculative_blocks=drafted,
                **({"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 1} if is_kept else {}),
            )
    raise ValueError(kind)
