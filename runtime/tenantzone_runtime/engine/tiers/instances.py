"""Computes the instance of a chunk: a record of everything that the chunk's bytes depend on, except its tokens.

A tier finds a chunk only for the instance with which the chunk was stored.
"""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import vllm
from vllm.config import ModelConfig, VllmConfig
from vllm.v1.kv_cache_interface import KVCacheConfig, MambaSpec
from vllm.v1.kv_offload.config import OffloadingConfig

from tenantzone_contract.zone_config.instance import Instance

_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
"""Patterns of the weight files that vLLM looks for in a model's folder."""
_SNAPSHOTS: Final = "snapshots"
"""In a Hugging Face cache, each model has a folder with this name. It contains one folder for each commit."""


def instance_of(
    config: VllmConfig, offloading: OffloadingConfig, caches: KVCacheConfig
) -> Callable[[str, str], Instance]:
    """Returns a function that computes the instance of an engine's chunks from a tenant and the id of the salt key.

    The function reads the model's weights when it is first called. An instance need not identify the weights of an
    adapter, because the block hashes do.

    Raises:
        OSError: the returned function can't read the weights.
    """
    known: dict[str, str] = {}

    def instance(tenant: str, salt_key_id: str) -> Instance:
        if not known:
            known["weights"] = weights_revision(config.model_config)
        parallel = config.parallel_config
        return Instance(
            zone=tenant,
            # vLLM's digest covers everything in a model's config that affects computation, but not the weights.
            model=f"{config.model_config.model} {config.model_config.compute_hash()}",
            weights_revision=known["weights"],
            dtype=offloading.model.dtype,
            block_size=offloading.groups[0].tokens_per_block,
            blocks_per_chunk=offloading.cache.blocks_per_chunk,
            layout=_layout(offloading, caches),
            tensor_parallel_size=parallel.tensor_parallel_size,
            tensor_parallel_rank=0,
            hash_algorithm=config.cache_config.prefix_caching_hash_algo,
            hash_seed=os.environ.get("PYTHONHASHSEED", ""),
            salt_key_id=salt_key_id,
            lora_digest="",
            engine_version=vllm.__version__,
        )

    return instance


def _layout(offloading: OffloadingConfig, caches: KVCacheConfig) -> str:
    """Returns a description of the layout of a chunk's bytes.

    If there are several KV cache groups, a chunk belongs to the layers of one group. Blocks of states are padded to the
    size of other groups' blocks, so the description also contains the shapes and dtypes of states.
    """
    layout = f"{offloading.kv_cache_layout} {offloading.worker_kv_bytes_per_block}"
    groups = len(offloading.groups)
    if groups == 1:
        return layout
    specs = [group.kv_cache_spec for group in caches.kv_cache_groups]
    states = [f"{spec.shapes} {spec.dtypes}" for spec in specs if isinstance(spec, MambaSpec)]
    return ", ".join([f"{layout} of {groups} groups", *states])


def weights_revision(model: ModelConfig) -> str:
    """Returns a unique name for a model's weights: a Hugging Face commit or revision, or a digest of local files.

    Raises:
        OSError: the weights can't be read.
    """
    folder = Path(model.model)
    if not folder.is_dir():
        # The model is given by name. Use the commit to which vLLM has resolved the name, because a branch can move.
        return _commit_of(model) or f"revision {model.revision}"
    resolved = folder.resolve()
    if resolved.parent.name == _SNAPSHOTS:
        return f"commit {resolved.name}"
    files = sorted({path for pattern in _WEIGHTS for path in resolved.glob(pattern)})
    with ThreadPoolExecutor() as threads:
        digests = list(threads.map(_digest, files))
    whole = hashlib.sha256()
    for path, digest in zip(files, digests, strict=True):
        # `!r` quotes the name, so that different lists of files can't produce the same text.
        whole.update(f"{digest} {path.name!r}\n".encode())
    return f"sha256 {whole.hexdigest()}"


def _commit_of(model: ModelConfig) -> str:
    commit = getattr(model.hf_config, "_commit_hash", None)
    return f"commit {commit}" if commit else ""


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
