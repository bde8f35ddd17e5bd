"""How the hashes of blocks look where there is no model: an owner, and what tells the content."""

from collections.abc import Iterable
from typing import Any, Final

from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.request import Request

from tenantzone_runtime.engine.engine_shape import Prompt

OWNER_BYTES: Final = 4
"""With which a block's hash begins."""


class Hasher:
    """Tells the hashes of a request's blocks that are full and have none yet.

    Args:
        prompt: what the request's text is.
        owner: who finds its blocks again.
        block_tokens: of a block.
    """

    def __init__(self, prompt: Prompt, owner: int, block_tokens: int) -> None:
        self._prompt = prompt
        self._owner = owner.to_bytes(OWNER_BYTES, "big")
        self._block_tokens = block_tokens

    def __call__(self, request: Request) -> list[BlockHash]:
        begin, end = len(request.block_hashes), request.num_tokens // self._block_tokens
        if begin == end:
            return []
        prompt, owner, size = self._prompt, self._owner, self._block_tokens
        hashes = []
        for index in range(begin, end):
            content, part = prompt.block(index, size)
            hashes.append(BlockHash(owner + content.to_bytes(24, "big", signed=True) + part.to_bytes(4, "big")))
        return hashes


def owners(block_hashes: Iterable[bytes | None]) -> Iterable[int]:
    """Whose blocks these are, of those that have a hash."""
    return (owner_of(each) for each in block_hashes if each is not None)


def owner_of(block_hash: Any) -> int:
    """Whose block it is."""
    return int.from_bytes(block_hash[:OWNER_BYTES], "big")
