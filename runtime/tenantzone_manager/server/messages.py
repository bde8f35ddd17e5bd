"""Requests and answers. The gRPC messages (``manager.proto``) have the same fields.

In JSON, the keys of blocks are encoded in base64, as in Protobuf's JSON mapping of bytes.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tenantzone_manager.core.settings import (
    Bytes,
    Instance,
    InstanceGroup,
    Name,
    Namespace,
    QualifiedName,
    ServiceAccount,
    Storage,
)
from tenantzone_manager.core.writing import Ending, WriteStatus
from tenantzone_manager.reads.hits import KeyGroup
from tenantzone_manager.reads.reading import LocationPlace, Query

MAX_KEYS = 16_384
"""Maximum number of keys in one call. Each step over all keys blocks other callers for a few milliseconds."""
MAX_PARTS = 2**18
"""Maximum number of parts (``specs``) of all blocks in one call. A query by groups counts each block once per group.
Each part takes about 200 bytes in an answer."""
MAX_TOKENS = 2**17
"""Maximum number of tokens in one call. The caller must send a longer prompt as keys of its blocks."""
MAX_VALUES = MAX_TOKENS + 1024
"""Maximum number of values (keys, tokens, indices and names) in one request. Reading one value blocks other callers for
tens of nanoseconds."""
LARGEST_REQUEST = 4 * 2**20
"""Maximum size of a request in bytes. ``MAX_KEYS`` keys of 128 bytes, each with an index and a spec set, take 3.2 MiB
in JSON."""

Keys = Annotated[list[Annotated[bytes, Meta(min_length=1, max_length=128)]], Meta(max_length=MAX_KEYS)]
TokenIds = Annotated[list[int], Meta(max_length=MAX_TOKENS)]
Seconds = Annotated[float, Meta(ge=0)]


LONG_REQUEST = 2**16
"""Size in bytes above which a request waits for a turn before it is decoded."""


class RequestTooLarge(Exception):
    """A request has more bytes than any call needs."""


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request."""


class Answer(msgspec.Struct, kw_only=True):
    """An answer."""


class Empty(Message):
    """A request without fields."""


class Done(Answer):
    """An answer without fields."""


class Prompt(Message):
    """A prompt's blocks from its beginning, given either by keys or by tokens."""

    instance_id: Name
    block_keys: Keys = []
    token_ids: TokenIds = []


class GetCacheLocationRequest(Prompt):
    """Get the locations of readable blocks."""

    query_type: Query = "prefix"
    """``key`` finds each block on its own, ``prefix`` the blocks before the first missing block, ``window`` only the
    last blocks, ``groups`` the longest prefix for which each KV-cache group of the model has the blocks it needs."""
    window: Annotated[int, Meta(ge=0, le=MAX_KEYS)] = 0
    """Number of blocks in the window, for a query by window."""
    specs: list[str] = []
    """Names of the parts that a location must have. If empty, a location may have any parts."""
    groups: Annotated[list[KeyGroup], Meta(max_length=1024)] = []
    """KV-cache groups, for a query by groups. Each block of the prompt is looked up at most once for each group."""


class BlockLocations(Answer):
    """The locations where one block can be read, best first; empty: it can't be read."""

    locations: list[LocationPlace]


class GetCacheLocationResponse(Answer):
    """The blocks that can be read."""

    first_block: int
    """Index in the prompt of the first block in ``blocks``, or 0 for a query by groups."""
    matched_blocks: int
    """Length in blocks of the prefix that need not be computed, or, for a query by key, the number of found blocks."""
    lease_seconds: float
    """Seconds for which all found blocks can be read, counted from the sending of the request."""
    blocks: list[BlockLocations]
    """The found blocks in prompt order. For a query by groups, the blocks are ordered by group first."""


class StartWriteCacheRequest(Prompt):
    """Begin to write the missing blocks of a prompt."""

    first_block: Annotated[int, Meta(ge=0)] = 0
    """Index of the first block whose bytes the caller has. Of earlier blocks, the caller has only the keys."""
    spec_sets: Annotated[list[str], Meta(max_length=MAX_KEYS)] = []
    """For each block from ``first_block`` on, the name of its spec set. If empty, all blocks have all parts."""
    write_timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Seconds after which the writer is presumed dead."""
    parents: Annotated[list[Annotated[int, Meta(ge=-1)]], Meta(max_length=MAX_KEYS)] = []
    """For each block, the index of the previous block of its prompt, or -1 for the first block. If empty, each block
    follows the preceding block in the request."""
    whole: bool = False
    """Whether to write nothing unless all missing blocks can be written."""


class BlockToWrite(Answer):
    """A block's write status for the caller."""

    standing: WriteStatus
    location: LocationPlace | None = None
    """Where to write the block. Absent if the caller must not write the block."""


class StartWriteCacheResponse(Answer):
    """The blocks to write, and their locations."""

    write_id: str
    """Id of the write for FinishWriteCache. Empty if there is nothing to write."""
    deadline: float
    """Unix time at which the writer is presumed dead."""
    blocks: list[BlockToWrite]


class FinishWriteCacheRequest(Message):
    """Finish a write; its blocks are given by keys, or by tokens and indices."""

    instance_id: Name
    write_id: Annotated[str, Meta(min_length=1, max_length=64)]
    block_keys: Keys = []
    """Keys of all blocks of the write that were written or failed, in any order."""
    token_ids: TokenIds = []
    blocks: Annotated[list[int], Meta(max_length=MAX_KEYS)] = []
    """Indices of the blocks that were written or failed. With ``block_keys``, an empty list stands for all keys."""
    failed_blocks: Annotated[list[int], Meta(max_length=MAX_KEYS)] = []
    """Indices, in ``block_keys`` or in the prompt's blocks, of the blocks that were not written completely."""


class FinishWriteCacheResponse(Answer):
    """The ending of each block, in the order of the request."""

    endings: list[Ending]


class RemoveCacheRequest(Message):
    """Remove blocks, given by key or by the tokens of their prompt."""

    instance_id: Name
    block_keys: Keys = []
    token_ids: TokenIds = []
    first_block: Annotated[int, Meta(ge=0)] = 0
    """Index of the first block to remove."""


class TrimCacheRequest(Message):
    """Remove blocks of an instance, least recently used first."""

    instance_id: Name
    storage_type: str = ""
    """Storage type from which to remove blocks. If empty, blocks are removed from each type."""
    unused_for_seconds: Seconds = 0.0
    """Remove only blocks that were unused for at least this number of seconds."""
    to_bytes: Bytes = 0
    """Number of bytes to keep in each type."""


class RemovedResponse(Answer):
    """The blocks and bytes that ceased to serve; the bytes are released once no reader is left."""

    blocks: int
    bytes: int


class RegisterInstanceRequest(Message):
    """Register an instance, which never changes afterwards."""

    instance: Instance


class InstanceResponse(Answer):
    """A registered instance."""

    instance: Instance
    bytes_by_type: dict[str, int]


class OfInstance(Message):
    """A request about an instance."""

    instance_id: Name


class ListInstancesResponse(Answer):
    """All instances that the caller may see."""

    instances: list[InstanceResponse]


class PutInstanceGroupRequest(Message):
    """Create or replace a group."""

    group: InstanceGroup
    namespace: Namespace = ""
    """Namespace whose pools, aliases, zones and instances are replaced. If empty, those of all namespaces are."""


class OfGroup(Message):
    """A request about a group."""

    group: Name


class Usage(Answer):
    """An account, in bytes."""

    used: int
    deleting: int
    committed: int
    """Used bytes plus reserved bytes that are not used."""


class GroupResponse(Answer):
    """A group and its usage."""

    group: InstanceGroup
    total: Usage
    types: dict[str, Usage]
    instances: int
    """Number of instances in the group."""
    evicted_blocks: int
    """Evictions since the group was created. The eviction of a block from two storage types counts twice."""
    evicted_bytes: int


class ListInstanceGroupsRequest(Message):
    """List the groups."""

    namespace: Namespace = ""
    """Namespace whose pools, aliases, zones and instances are shown. If empty, those of all namespaces are shown."""


class ListInstanceGroupsResponse(Answer):
    """All groups."""

    groups: list[GroupResponse]


class RegisterStorageRequest(Message):
    """Create or replace a storage."""

    storage: Storage


class OfStorage(Message):
    """A request about a storage."""

    name: Name


class StorageResponse(Answer):
    """A storage, its state and its usage."""

    storage: Storage
    available: bool
    problem: str
    """Reason why the storage can't be used. If empty, the storage can be used if it is enabled."""
    since: float
    """Unix time of the last change of availability."""
    used: int
    """Number of used bytes."""
    shares_place_with: list[str] = []
    """Names of other storages with the same address. Only the storage that claimed the address first can be used."""


class ListStoragesResponse(Answer):
    """Storages."""

    storages: list[StorageResponse]


class PutServiceAccountRequest(Message):
    """Create or replace a service account."""

    account: ServiceAccount


class OfServiceAccount(Message):
    """A request about a service account."""

    name: QualifiedName


class ListServiceAccountsResponse(Answer):
    """The service accounts that administrators have registered, without those that the manager was started with."""

    accounts: list[ServiceAccount]


class ErrorBody(Answer):
    """Why a request was refused."""

    code: str
    """Name of the gRPC status code, for example ``INVALID_ARGUMENT`` or ``NOT_FOUND``."""
    message: str


class ErrorResponse(Answer):
    """The answer to a refused request."""

    error: ErrorBody


def field_names(kind: Any) -> list[str]:
    """Returns the names of a message's fields."""
    return [field.name for field in msgspec.structs.fields(kind)]


def check_values(count: int) -> None:
    """Refuse a request before its values are read.

    Args:
        count: upper bound of the number of values.

    Raises:
        ValueError: ``count`` exceeds ``MAX_VALUES``.
    """
    if count > MAX_VALUES:
        raise ValueError(
            f"a request may have at most {MAX_VALUES} keys, tokens, indices and names; split it into several calls"
        )
