"""Instances: the model, zone and settings on which a chunk's bytes depend. Digests keep instances apart in a tier."""

import hashlib

from pydantic import BaseModel, ConfigDict

from tenantzone_contract.zone_config.config_model import canonical


class Instance(BaseModel):
    """Everything that a chunk's bytes depend on, apart from the chunk's tokens.

    Instances that differ in any field never read each other's chunks. No field has a default, because if a caller
    forgot a field, two different instances could read each other's chunks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    zone: str
    """Tenant of the zone."""
    model: str
    weights_revision: str
    """Commit or digest of the weights, but not a branch, because a branch can move."""
    dtype: str
    """Data type of the cached keys and values."""
    block_size: int
    """Number of tokens per block."""
    blocks_per_chunk: int
    layout: str
    """vLLM's name for the layout of a block's bytes."""
    tensor_parallel_size: int
    tensor_parallel_rank: int
    hash_algorithm: str
    hash_seed: str
    """Seed of the prefix hashes, or empty if none is set."""
    salt_key_id: str
    lora_digest: str
    """Digest of the adapter's weights (not its name), or empty without an adapter."""
    engine_version: str
    """Version of the engine that wrote the chunk."""

    @property
    def digest(self) -> str:
        """SHA-256 digest over all fields and their names, in hexadecimal."""
        return hashlib.sha256(canonical(self.model_dump()).encode()).hexdigest()
