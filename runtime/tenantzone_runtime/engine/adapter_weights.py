"""Puts what a LoRA adapter's weights are into what identifies a block.

vLLM tells adapters apart by name and path. Where other weights lie under the same path after a restart, a block that
outlived it, in a tier or behind a router that compares hashes, would be taken for one of theirs. And a worker that has
loaded more adapters than it keeps reads one again from its path when it is asked for the next time, whatever is there.
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
"""Of each file of a folder: its name, inode, bytes, and when it was changed, in nanoseconds."""


_FILES: Final = "adapter_*"
"""What vLLM reads of an adapter's folder: its config and its weights, in one of several formats."""


@dataclass(frozen=True, slots=True)
class Weights:
    """An adapter's files, as they were when the engine loaded it."""

    folder: Path
    signature: Signature
    digest: str
    """SHA-256 over all of them by name, in hexadecimal."""


class AdapterWeights:
    """What the adapters of an engine consist of, by the number by which its workers keep them."""

    def __init__(self) -> None:
        self._known: dict[int, Weights] = {}

    def read(self, adapter: LoRARequest) -> Weights:
        """Look at an adapter's files as they are now, which the workers are about to load.

        Raises:
            OSError: they can't be read.
        """
        folder = Path(get_adapter_absolute_path(adapter.lora_path))
        # Before they are read: what changes meanwhile has another signature afterwards.
        signature = _signature(folder)
        weights = self._known[adapter.lora_int_id] = Weights(folder, signature, _digest(folder))
        return weights

    def digest(self, adapter: LoRARequest) -> str:
        """Of an adapter's files, as they were when it was loaded.

        Raises:
            OSError: it was not looked at before, and can't be read.
        """
        return (self._known.get(adapter.lora_int_id) or self.read(adapter)).digest

    def have_changed(self, adapter: LoRARequest) -> bool:
        """Whether an adapter's files are others than when it was loaded; what can't be told counts as changed."""
        weights = self._known.get(adapter.lora_int_id)
        if weights is None:
            return False
        try:
            return _signature(weights.folder) != weights.signature
        except OSError:
            return True


ADAPTERS: Final = AdapterWeights()
"""Those of this process' engine."""


def identify_adapters_by_weights() -> None:
    """Have vLLM's engine core look at each adapter before it is loaded, and hash blocks with what it saw."""
    # Imported here: it imports the scheduler's module, which imports this one.
    from vllm.v1.engine.core import EngineCore

    if hasattr(EngineCore.add_lora, "__wrapped__"):
        return
    EngineCore.add_lora = _after_reading(EngineCore.add_lora)
    kv_cache_utils._gen_lora_extra_hash_keys = _with_digest


def _after_reading(add_lora: Any) -> Any:
    @wraps(add_lora)
    def read_and_add_lora(core: Any, adapter: LoRARequest) -> bool:
        ADAPTERS.read(adapter)
        return bool(add_lora(core, adapter))

    return read_and_add_lora


def _with_digest(request: Request) -> list[tuple[str, str, str]]:
    """What vLLM puts into each block's hash for an adapter; the name, which KV events tell, stays where it was."""
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
        # Quoted: no name may make one list of files look like another.
        digest.update(f"{content} {path.name!r}\n".encode())
    return digest.hexdigest()
