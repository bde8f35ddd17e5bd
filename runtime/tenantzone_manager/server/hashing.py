"""Computes block keys from token ids by chained hashing, so a key identifies all tokens up to the end of its block."""

import hashlib
import struct
from collections.abc import Sequence

MAX_TOKEN_ID = 2**32 - 1


def block_keys(instance: str, token_ids: Sequence[int], block_size: int) -> list[bytes]:
    """Returns the keys of the full blocks of a token sequence.

    A key is the SHA-256 of the previous key and the block's tokens, packed as little-endian uint32. For the first
    block, the SHA-256 of the instance's name is used as the previous key. Tokens after the last full block are ignored.

    Args:
        instance: name of the instance.
        token_ids: token ids from the beginning of the prompt.
        block_size: number of tokens per block.

    Raises:
        ValueError: a token id is not an unsigned 32-bit number.
    """
    whole = len(token_ids) // block_size * block_size
    try:
        packed = struct.pack(f"<{whole}I", *token_ids[:whole])
    except struct.error:
        raise ValueError(f"token_ids must be integers from 0 to {MAX_TOKEN_ID}") from None
    keys = []
    key = hashlib.sha256(instance.encode()).digest()
    width = 4 * block_size
    for begin in range(0, len(packed), width):
        key = hashlib.sha256(key + packed[begin : begin + width]).digest()
        keys.append(key)
    return keys
