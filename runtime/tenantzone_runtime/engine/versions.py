"""The versions of vLLM that this adapter supports.

All code that depends on vLLM's version is here, and docs/vllm.md lists the compared differences. Importing this module
imports no vLLM internals, because they may be elsewhere in another version, which must be refused before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import vllm
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tenantzone_runtime.resolved_config import has_groups_in_tiers
from tenantzone_runtime.unsupported import configured

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

SUPPORTED_VERSIONS = SpecifierSet(">=0.31.0,<0.34")
_GROUPS_IN_TIERS = SpecifierSet("==0.32.*")


class UnsupportedError(RuntimeError):
    """Zones can't be enforced with this vLLM version, model or flag. The message states the cause and the remedy."""


def check_version(version: str = vllm.__version__) -> None:
    """Check that this adapter supports the internals of this version of vLLM.

    Raises:
        UnsupportedError: the version is outside the supported range.
    """
    if not SUPPORTED_VERSIONS.contains(Version(version), prereleases=True):
        raise UnsupportedError(
            f"vLLM {version} is not supported, because zones need vllm{SUPPORTED_VERSIONS}; install such a version, "
            "or start vLLM without --scheduler-cls to run without zones"
        )


def keep_groups_in_tiers(version: str = vllm.__version__) -> bool:
    """Returns whether tiers were verified with several groups of KV caches per prompt for this version of vLLM."""
    return _GROUPS_IN_TIERS.contains(Version(version), prereleases=True)


def check_supported(config: VllmConfig, caches: KVCacheConfig, version: str = vllm.__version__) -> None:
    """Check that vLLM's config enables no feature that is incompatible with zones.

    Raises:
        UnsupportedError: a flag, a file or the model enables an unsupported feature. The message states the reason.
    """
    found = [
        f"{unsupported.feature} ({unsupported.reason}; {unsupported.instead})"
        for unsupported in configured(config, caches)
    ]
    if has_groups_in_tiers(config, caches) and not keep_groups_in_tiers(version):
        found.append(
            f"tiers for a model with several groups of KV caches with vLLM {version} (they were tested together only "
            f"with vllm{_GROUPS_IN_TIERS}; install such a version, or omit the tiers)"
        )
    if found:
        raise UnsupportedError(
            f"model {config.model_config.model} can't be served with zones: {'; '.join(found)}. "
            "Or start vLLM without --scheduler-cls to run without zones"
        )


def end_with_next_output(scheduler: Scheduler, request_ids: Iterable[str]) -> None:
    """Have vLLM end requests with an error in its next output, as it ends requests whose grammars do not compile."""
    failed = scheduler.grammar_compile_error_reqs
    # Since 0.33, an entry can have the API server's answer. It is not used here, because vLLM does not support 429.
    failed.update(request_ids if isinstance(failed, set) else dict.fromkeys(request_ids))


def chat_utils() -> Any:
    """Returns vLLM's module that gathers the images, sounds and videos of a conversation."""
    try:
        return import_module("vllm.renderers.chat_utils")
    except ImportError:
        return import_module("vllm.entrypoints.chat_utils")


def prepare_environment() -> None:
    """Set the environment variables that vLLM's own command sets first."""
    try:
        from vllm.entrypoints.common.startup import cli_env_setup
    except ImportError:  # before 0.33
        from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    cli_env_setup()


def generation_error() -> type[Exception]:
    """Returns the exception with which vLLM's API server ends a request without a traceback in its log."""
    try:
        from vllm.exceptions import GenerationError
    except ImportError:  # before 0.32
        from vllm.entrypoints.openai.engine.protocol import GenerationError
    return GenerationError


def window_in_chunks(spec: KVCacheSpec, tokens_per_chunk: int) -> int | None:
    """Returns the number of a tier's chunks that a sliding window needs, or None for a layer without a window."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import get_sliding_window_size_in_chunks
    except ImportError:  # before 0.33
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import get_sliding_window_size_in_chunks
    return get_sliding_window_size_in_chunks(spec, tokens_per_chunk)
