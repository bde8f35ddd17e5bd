"""What the bytes of a cached chunk mean: the digest that keeps chunks of different meaning apart in a tier."""

import hashlib

from pydantic import BaseModel, ConfigDict

from tenantzone_contract.config_model import canonical


class Instance(BaseModel):
    """All that a chunk's bytes depend on beside its tokens. What differs in any of it never reads the other's chunks.

    Nothing has a default: who forgets a part would let two instances read each other's bytes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    zone: str
    """The tenant whose it is."""
    model: str
    weights_revision: str
    """A commit or a digest; a branch moves."""
    dtype: str
    """Of the cached keys and values."""
    block_size: int
    """Tokens."""
    blocks_per_chunk: int
    layout: str
    """vLLM's name of how a block's bytes are ordered."""
    tensor_parallel_size: int
    tensor_parallel_rank: int
    hash_algorithm: str
    hash_seed: str
    """Of the prefix hashes; empty: none was set."""
    salt_key_id: str
    lora_digest: str
    """Of the adapter's weights, and not its name; empty: none."""
    engine_version: str
    """Of the engine that wrote the bytes."""

    @property
    def digest(self) -> str:
        """SHA-256 over all parts by name, in hexadecimal."""
        return hashlib.sha256(canonical(self.model_dump()).encode()).hexdigest()
