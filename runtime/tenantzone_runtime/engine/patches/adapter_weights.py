"""Adds a digest of a LoRA adapter's weights to the block hashes.

vLLM identifies an adapter by its name and path. If the files at that path change between two starts, blocks that were
cached with the old weights could be used with the new weights, by a tier or by a router that compares hashes. Files may
also change while the engine runs: a worker that has evicted an adapter reads the files again at the next request.

Upstream change that would make this module unnecessary: vLLM's ``LoRARequest`` contains a digest of the adapter, and
block hashes include the digest.
"""

import hashlib
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

from vllm.lora.request import LoRARequest
from vllm.lora.utils import get_adapter_absolute_path
from vllm.v1.core import kv_cache_utils
from vllm.v1.request import Request

Signature = frozenset[tuple[str, int, int, int]]
"""Name, inode, size in bytes and modification time in nanoseconds of each file of a folder."""


_FILES: Final = "adapter_*"
"""Pattern for the files that vLLM reads in an adapter's folder: its config, and its weights in several formats."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The state of an adapter's files when the engine loaded them."""

    folder: Path
    signature: Signature
    digest: str
    """SHA-256 digest over the names and contents of all files, in hexadecimal."""


class AdapterWeights:
    """The weights of an engine's adapters, by ``lora_int_id``."""

    def __init__(self) -> None:
        self._known: dict[int, Weights] = {}

    def read(self, adapter: LoRARequest) -> Weights:
        """Read an adapter's files just before the workers load them. Returns the files' state, and remembers it.

        Raises:
            OSError: the files can't be read.
        """
        folder = Path(get_adapter_absolute_path(adapter.lora_path))
        # Take the signature first, so that `have_changed` detects files that change while they are read.
        signature = _signature(folder)
        weights = self._known[adapter.lora_int_id] = Weights(folder, signature, _digest(folder))
        return weights

    def digest(self, adapter: LoRARequest) -> str:
        """Returns the digest of an adapter's files, as of the time when the engine loaded the files.

        Raises:
            OSError: the adapter has not been read before, and can't be read now.
        """
        return (self._known.get(adapter.lora_int_id) or self.read(adapter)).digest

    def have_changed(self, adapter: LoRARequest) -> bool:
        """Returns whether an adapter's files differ from the loaded files. Unreadable files count as changed."""
        weights = self._known.get(adapter.lora_int_id)
        if weights is None:
            return False
        try:
            return _signature(weights.folder) != weights.signature
        except OSError:
            return True


ADAPTERS: Final = AdapterWeights()
"""Adapters of the engine in this process."""


def identify_adapters_by_weights() -> None:
    """Make vLLM's engine core compute the digest of each adapter that it loads, and include it in block hashes."""
    # Imported here, because `engine.core` imports the scheduler's module, which imports this module.
    from vllm.v1.core.sched.interface import SchedulerInterface
    from vllm.v1.engine.core import EngineCore

    if not hasattr(SchedulerInterface, "on_lora_added") and not hasattr(EngineCore.add_lora, "__wrapped__"):
        EngineCore.add_lora = _after_reading(EngineCore.add_lora)
    kv_cache_utils._gen_lora_extra_hash_keys = _with_digest


def _after_reading(add_lora: Any) -> Any:
    @wraps(add_lora)
    def read_and_add_lora(core: Any, adapter: LoRARequest) -> bool:
        ADAPTERS.read(adapter)
        return bool(add_lora(core, adapter))

    return read_and_add_lora


def _with_digest(request: Request) -> list[tuple[str, str, str]]:
    """Returns the adapter's part of each block hash: as in vLLM, but with the digest instead of the path."""
    adapter = request.lora_request
    return [("lora", adapter.lora_name, ADAPTERS.digest(adapter))] if adapter else []


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(_FILES))


def _signature(folder: Path) -> Signature:
    states = ((path.name, path.stat()) for path in _files(folder))
    return frozenset((name, state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(folder):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        # `!r` quotes the name, so that different lists of files can't produce the same text.
        digest.update(f"{content} {path.name!r}\n".encode())
    return digest.hexdigest()
