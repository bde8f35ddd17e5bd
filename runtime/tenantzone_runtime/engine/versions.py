"""Which versions of vLLM this adapter fits, and which of their features do not go with zones yet.

Whatever depends on vLLM's version is here. The supported ones differ in nothing that this adapter calls or extends;
docs/vllm.md says what was compared. Importing this module imports nothing of vLLM's internals: in another version they
may be elsewhere, and the refusal must come before that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import vllm
from packaging.specifiers import SpecifierSet
from packaging.version import Version

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

SUPPORTED_VERSIONS = SpecifierSet(">=0.31.0,<0.33")


class UnsupportedError(RuntimeError):
    """Zones can't be enforced with this vLLM, this model or this flag; the message names it and says what to do."""


def check_version(version: str = vllm.__version__) -> None:
    """Check that this adapter was made for the internals of this version of vLLM.

    Raises:
        UnsupportedError: the version is outside of the supported range.
    """
    if not SUPPORTED_VERSIONS.contains(Version(version), prereleases=True):
        raise UnsupportedError(
            f"vLLM {version} is not supported, zones need vllm{SUPPORTED_VERSIONS}; install one of those, "
            "or start vLLM without --scheduler-cls to go without zones"
        )


@dataclass(frozen=True, slots=True)
class _Unsupported:
    name: str
    used: Callable[[VllmConfig, KVCacheConfig], bool]


_UNSUPPORTED = (
    _Unsupported("--kv-transfer-config (a KV connector)", lambda config, _: config.kv_transfer_config is not None),
    _Unsupported(
        "--ec-transfer-config (an encoder cache connector)", lambda config, _: config.ec_transfer_config is not None
    ),
    _Unsupported("--speculative-config", lambda config, _: config.speculative_config is not None),
    _Unsupported("--data-parallel-size above 1", lambda config, _: config.parallel_config.data_parallel_size > 1),
    _Unsupported(
        "--pipeline-parallel-size above 1", lambda config, _: config.parallel_config.pipeline_parallel_size > 1
    ),
    _Unsupported("an encoder-decoder model", lambda config, _: config.model_config.is_encoder_decoder),
    _Unsupported(
        "a multimodal model (vLLM's caches of encoded media know no tenant)",
        lambda config, _: config.model_config.is_multimodal_model,
    ),
    _Unsupported("a pooling model", lambda config, _: config.model_config.runner_type == "pooling"),
    _Unsupported(
        "a model with more than one group of KV caches (hybrid attention)",
        lambda _, caches: len(caches.kv_cache_groups) != 1,
    ),
    _Unsupported("a model with Mamba layers", lambda _, caches: bool(caches.has_mamba_layers)),
)


def check_supported(config: VllmConfig, caches: KVCacheConfig) -> None:
    """Check that vLLM's config asks for nothing that does not go with zones yet.

    Raises:
        UnsupportedError: a flag or a kind of model, named, with the model.
    """
    found = [unsupported.name for unsupported in _UNSUPPORTED if unsupported.used(config, caches)]
    if found:
        raise UnsupportedError(
            f"model {config.model_config.model}: not supported together with zones: {'; '.join(found)}. "
            "Leave it out, or start vLLM without --scheduler-cls to go without zones"
        )
