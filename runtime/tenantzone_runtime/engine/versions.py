"""Which versions of vLLM this adapter fits.

Whatever depends on vLLM's version is here; docs/vllm.md says what was compared. Importing this module imports nothing
of vLLM's internals: in another version they may be elsewhere, and the refusal must come before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import vllm
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tenantzone_runtime.unsupported import configured, has_groups_in_tiers

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

SUPPORTED_VERSIONS = SpecifierSet(">=0.31.0,<0.34")
_GROUPS_IN_TIERS = SpecifierSet("==0.32.*")


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


def keep_groups_in_tiers(version: str = vllm.__version__) -> bool:
    """Whether tiers were seen to keep together what several groups of KV caches have of a prompt, with this vLLM."""
    return _GROUPS_IN_TIERS.contains(Version(version), prereleases=True)


def check_supported(config: VllmConfig, caches: KVCacheConfig, version: str = vllm.__version__) -> None:
    """Check that vLLM's config asks for nothing that does not go with zones yet.

    Raises:
        UnsupportedError: what vLLM was configured for, by a flag, a file or the model, and why it is refused.
    """
    found = [
        f"{unsupported.feature} ({unsupported.reason}; {unsupported.instead})"
        for unsupported in configured(config, caches)
    ]
    if has_groups_in_tiers(config, caches) and not keep_groups_in_tiers(version):
        found.append(
            f"tiers and a model with several groups of KV caches with vLLM {version} (they were seen together with "
            f"vllm{_GROUPS_IN_TIERS}; install that, or leave the tiers out)"
        )
    if found:
        raise UnsupportedError(
            f"model {config.model_config.model} can't be served with zones: {'; '.join(found)}. "
            "Or start vLLM without --scheduler-cls to go without zones"
        )


def end_with_next_output(scheduler: Scheduler, request_ids: Iterable[str]) -> None:
    """Have vLLM end requests with an error in its next output, as it ends those whose grammar fails to compile."""
    failed = scheduler.grammar_compile_error_reqs
    # Since 0.33 it says of each what the API server answers. Ours is told elsewhere: vLLM knows no status 429.
    failed.update(request_ids if isinstance(failed, set) else dict.fromkeys(request_ids))


def chat_utils() -> Any:
    """The module of vLLM's that gathers the images, sounds and videos of a conversation."""
    try:
        return import_module("vllm.renderers.chat_utils")
    except ImportError:
        return import_module("vllm.entrypoints.chat_utils")


def prepare_environment() -> None:
    """Set in the environment what vLLM's own command sets before it does anything."""
    try:
        from vllm.entrypoints.common.startup import cli_env_setup
    except ImportError:  # before 0.33
        from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    cli_env_setup()


def generation_error() -> type[Exception]:
    """The exception by which vLLM's API server ends a request without a traceback in its log."""
    try:
        from vllm.exceptions import GenerationError
    except ImportError:  # before 0.32
        from vllm.entrypoints.openai.engine.protocol import GenerationError
    return GenerationError


def window_in_chunks(spec: KVCacheSpec, tokens_per_chunk: int) -> int | None:
    """Return how many chunks of a tier a sliding window needs, or None for a layer without a window."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import get_sliding_window_size_in_chunks
    except ImportError:  # before 0.33
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import get_sliding_window_size_in_chunks
    return get_sliding_window_size_in_chunks(spec, tokens_per_chunk)
