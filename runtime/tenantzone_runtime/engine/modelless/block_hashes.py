"""Block hashes for a scheduler without a model. A hash consists of an owner and an identity of the block's content."""

from collections.abc import Iterable
from typing import Any, Final

from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.request import Request

from tenantzone_runtime.engine.modelless.engine_shape import Prompt

OWNER_BYTES: Final = 4
"""Number of leading bytes of a block's hash that encode the owner."""


class Hasher:
    """Computes the missing hashes of a request's full blocks. vLLM calls it when the request gets tokens.

    Args:
        prompt: the request's text.
        owner: the number of the owner. Requests of one owner share cached blocks.
        block_tokens: the number of tokens of a block.
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
    """Returns the owners of the blocks that have a hash. ``block_hashes`` contains None for other blocks."""
    return (owner_of(each) for each in block_hashes if each is not None)


def owner_of(block_hash: Any) -> int:
    """Returns the number of the owner in a block's hash."""
    return int.from_bytes(block_hash[:OWNER_BYTES], "big")
