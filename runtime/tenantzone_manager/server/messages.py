"""Requests and answers. The gRPC messages (``manager.proto``) have the same fields.

In JSON, keys of blocks are base64, as in Protobuf's JSON mapping of bytes.
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
"""The most keys in one call. Each step over all keys takes a few milliseconds, in which no other caller is served."""
MAX_PARTS = 2**18
"""The most parts of all blocks in one call, from their instance's ``specs``; a query by groups has each block once for
each group. In an answer each part has about 200 bytes."""
MAX_TOKENS = 2**17
"""The most tokens in one call. A longer prompt must be given by the keys of its blocks."""
MAX_VALUES = MAX_TOKENS + 1024
"""The most keys, tokens, indices and names in one request together. Reading one takes tens of nanoseconds, in which no
other caller is served."""
LARGEST_REQUEST = 4 * 2**20
"""Bytes. In JSON, ``MAX_KEYS`` keys of 128 bytes, with an index and a spec set for each, take 3.2 MiB."""

Keys = Annotated[list[Annotated[bytes, Meta(min_length=1, max_length=128)]], Meta(max_length=MAX_KEYS)]
TokenIds = Annotated[list[int], Meta(max_length=MAX_TOKENS)]
Seconds = Annotated[float, Meta(ge=0)]


LONG_REQUEST = 2**16
"""Bytes. A longer request waits for a turn before it is read."""


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
    """``key``: each block on its own; ``prefix``: up to the first missing block; ``window``: the last blocks only;
    ``groups``: the longest prefix for which each of the model's KV-cache groups has the blocks it needs."""
    window: Annotated[int, Meta(ge=0, le=MAX_KEYS)] = 0
    """For a query by window: the number of blocks."""
    specs: list[str] = []
    """Parts that a location must have; empty: any parts."""
    groups: Annotated[list[KeyGroup], Meta(max_length=1024)] = []
    """For a query by groups: the groups. Each block of the prompt is looked up at most once for each group."""


class BlockLocations(Answer):
    """The locations where one block can be read, best first; empty: it can't be read."""

    locations: list[LocationPlace]


class GetCacheLocationResponse(Answer):
    """The blocks that can be read."""

    first_block: int
    """The index in the prompt of the first of ``blocks``; for a query by groups, 0."""
    matched_blocks: int
    """The length in blocks of the prefix that need not be computed; for a query by key, the number of found blocks."""
    lease_seconds: float
    """Seconds for which all found blocks can be read, counted from when the request was sent."""
    blocks: list[BlockLocations]
    """The found blocks; for a query by groups, those of the first group, then those of the next, and so on."""


class StartWriteCacheRequest(Prompt):
    """Begin to write the missing blocks of a prompt."""

    first_block: Annotated[int, Meta(ge=0)] = 0
    """The first block that the caller has; the blocks before it are only named."""
    spec_sets: Annotated[list[str], Meta(max_length=MAX_KEYS)] = []
    """For each block from ``first_block`` on, the name of its spec set; empty: all parts of all blocks."""
    write_timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Seconds after which the writer is presumed dead."""
    parents: Annotated[list[Annotated[int, Meta(ge=-1)]], Meta(max_length=MAX_KEYS)] = []
    """For each block, the index of the previous block of its prompt; -1: none. Empty: each block follows the one named
    before it."""
    whole: bool = False
    """Whether to write nothing unless all missing blocks can be written: a part would be useless."""


class BlockToWrite(Answer):
    """A block's write status for the caller."""

    standing: WriteStatus
    location: LocationPlace | None = None
    """Where to write it; absent: it is not to be written."""


class StartWriteCacheResponse(Answer):
    """The blocks to write, and their locations."""

    write_id: str
    """The id for FinishWriteCache. Empty if there is nothing to write."""
    deadline: float
    """Unix time."""
    blocks: list[BlockToWrite]


class FinishWriteCacheRequest(Message):
    """Finish a write; its blocks are given by keys, or by tokens and indices."""

    instance_id: Name
    write_id: Annotated[str, Meta(min_length=1, max_length=64)]
    block_keys: Keys = []
    """The keys of all blocks of the write that were written or failed, in any order."""
    token_ids: TokenIds = []
    blocks: Annotated[list[int], Meta(max_length=MAX_KEYS)] = []
    """The indices of the given blocks that were written or failed. With ``block_keys``, empty: all of them."""
    failed_blocks: Annotated[list[int], Meta(max_length=MAX_KEYS)] = []
    """The indices in ``block_keys``, or in the prompt's blocks, of blocks that were not written completely."""


class FinishWriteCacheResponse(Answer):
    """The ending of each block, in the order of the request."""

    endings: list[Ending]


class RemoveCacheRequest(Message):
    """Remove blocks, given by key or by the tokens of their prompt."""

    instance_id: Name
    block_keys: Keys = []
    token_ids: TokenIds = []
    first_block: Annotated[int, Meta(ge=0)] = 0
    """The first block to remove."""


class TrimCacheRequest(Message):
    """Remove blocks of an instance, least recently used first."""

    instance_id: Name
    storage_type: str = ""
    """The storage type; empty: each type."""
    unused_for_seconds: Seconds = 0.0
    """Only blocks that were unused for this many seconds."""
    to_bytes: Bytes = 0
    """Bytes to keep in each type."""


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
    """The namespace whose pools, aliases, zones and instances are replaced. Empty: those of all namespaces."""


class OfGroup(Message):
    """A request about a group."""

    group: Name


class Usage(Answer):
    """An account, in bytes."""

    used: int
    deleting: int
    committed: int
    """Used bytes, and reserved bytes that are not used."""


class GroupResponse(Answer):
    """A group and its usage."""

    group: InstanceGroup
    total: Usage
    types: dict[str, Usage]
    instances: int
    """The number of its instances."""
    evicted_blocks: int
    """Evictions since the group was created, each from one storage type."""
    evicted_bytes: int


class ListInstanceGroupsRequest(Message):
    """List the groups."""

    namespace: Namespace = ""
    """The namespace whose pools, aliases, zones and instances are shown; empty: all."""


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
    """Why it can't be used; empty: it can be used if it is enabled."""
    since: float
    """Unix time of the last change of availability."""
    used: int
    """Bytes."""
    shares_place_with: list[str] = []
    """Other storages with the same address: only the first of them can be used."""


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
    """The gRPC status: ``INVALID_ARGUMENT``, ``NOT_FOUND`` and so on."""
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
        ValueError: there may be more than ``MAX_VALUES``.
    """
    if count > MAX_VALUES:
        raise ValueError(
            f"a request may have at most {MAX_VALUES} keys, tokens, indices and names; split it into several calls"
        )
