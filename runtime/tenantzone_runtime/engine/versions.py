"""The versions of vLLM that this adapter supports.

All code that depends on vLLM's version is here. docs/vllm.md lists the differences between the versions. This module
imports vLLM's internals only inside functions, because an unsupported version may have moved them, and
``check_version`` must refuse such a version with a clear message instead of an ``ImportError``.
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
    """Check that zones support a version of vLLM.

    Raises:
        UnsupportedError: the version is outside the supported range.
    """
    if not SUPPORTED_VERSIONS.contains(Version(version), prereleases=True):
        raise UnsupportedError(
            f"vLLM {version} is not supported, because zones need vllm{SUPPORTED_VERSIONS}; install such a version, "
            "or start vLLM without --scheduler-cls to run without zones"
        )


def keep_groups_in_tiers(version: str = vllm.__version__) -> bool:
    """Returns whether tiers were tested with this version of vLLM for models with several KV cache groups."""
    return _GROUPS_IN_TIERS.contains(Version(version), prereleases=True)


def check_supported(config: VllmConfig, caches: KVCacheConfig, version: str = vllm.__version__) -> None:
    """Check that vLLM's config enables no feature that is incompatible with zones.

    Raises:
        UnsupportedError: a flag, a file or the model enables such a feature. The message names all such features.
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
            "To run without zones, start vLLM without --scheduler-cls"
        )


def end_with_next_output(scheduler: Scheduler, request_ids: Iterable[str]) -> None:
    """Make vLLM's next output end requests with an error, as vLLM does for requests whose grammars do not compile."""
    failed = scheduler.grammar_compile_error_reqs
    # Since 0.33, an entry can contain the API server's response. It is left out, because vLLM can't respond with 429.
    failed.update(request_ids if isinstance(failed, set) else dict.fromkeys(request_ids))


def chat_utils() -> Any:
    """Returns vLLM's module that collects the images, sounds and videos of a conversation."""
    try:
        return import_module("vllm.renderers.chat_utils")
    except ImportError:
        return import_module("vllm.entrypoints.chat_utils")


def prepare_environment() -> None:
    """Set the environment variables that the ``vllm`` command sets before it starts a subcommand."""
    try:
        from vllm.entrypoints.common.startup import cli_env_setup
    except ImportError:  # before 0.33
        from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    cli_env_setup()


def generation_error() -> type[Exception]:
    """Returns the exception class that makes vLLM's API server end a request without logging a traceback."""
    try:
        from vllm.exceptions import GenerationError
    except ImportError:  # before 0.32
        from vllm.entrypoints.openai.engine.protocol import GenerationError
    return GenerationError


def window_in_chunks(spec: KVCacheSpec, tokens_per_chunk: int) -> int | None:
    """Returns how many chunks of a tier a layer's sliding window spans, or None for a layer without a window."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import get_sliding_window_size_in_chunks
    except ImportError:  # before 0.33
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import get_sliding_window_size_in_chunks
    return get_sliding_window_size_in_chunks(spec, tokens_per_chunk)
