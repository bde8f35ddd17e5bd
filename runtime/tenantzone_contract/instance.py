"""The meaning of a cached chunk's bytes: the digest that keeps chunks of different meaning apart in a tier."""

import hashlib

from pydantic import BaseModel, ConfigDict

from tenantzone_contract.config_model import canonical


class Instance(BaseModel):
    """Everything apart from its tokens that a chunk's bytes depend on.

    Instances that differ in any part never read each other's chunks. No part has a default: a forgotten part would let
    two instances read each other's bytes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    zone: str
    """The tenant of the zone."""
    model: str
    weights_revision: str
    """A commit or a digest, because a branch moves."""
    dtype: str
    """The data type of the cached keys and values."""
    block_size: int
    """The tokens per block."""
    blocks_per_chunk: int
    layout: str
    """vLLM's name for the order of a block's bytes."""
    tensor_parallel_size: int
    tensor_parallel_rank: int
    hash_algorithm: str
    hash_seed: str
    """The seed of the prefix hashes; empty if none was set."""
    salt_key_id: str
    lora_digest: str
    """The digest of the adapter's weights, not its name; empty for no adapter."""
    engine_version: str
    """The version of the engine that wrote the bytes."""

    @property
    def digest(self) -> str:
        """SHA-256 over all parts by name, in hexadecimal."""
        return hashlib.sha256(canonical(self.model_dump()).encode()).hexdigest()
