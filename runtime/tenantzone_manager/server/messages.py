"""What is asked and answered. The gRPC messages (``manager.proto``) have the same fields.

In JSON, keys of blocks are base64, as Protobuf's own mapping to JSON has bytes.
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
from tenantzone_manager.core.writing import Ending, Standing
from tenantzone_manager.hits import KeyGroup
from tenantzone_manager.reading import LocationPlace, Query

MAX_KEYS = 16_384
"""In one call. Each step over all of them takes a few milliseconds, in which no other caller is
served."""
MAX_PARTS = 2**18
"""Of all blocks that one call names, by their instance's ``specs``; a query by groups names each block for each group.
In an answer each part has some 200 bytes."""
MAX_TOKENS = 2**17
"""In one call. A prompt with more tokens is named by the keys of its blocks."""
MAX_VALUES = MAX_TOKENS + 1024
"""Keys, tokens, indices and names in one request together. To read one takes some tens of nanoseconds, in which no
other caller is served."""
LARGEST_REQUEST = 4 * 2**20
"""Bytes. In JSON, as many keys as there may be, of 128 bytes, with an index and a spec set for each, take 3.2 MiB."""

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
    """What comes back."""


class Empty(Message):
    """A request that says nothing."""


class Done(Answer):
    """An answer that says nothing but that it was done."""


class Prompt(Message):
    """A prompt's blocks from its beginning, by their keys or by its tokens: one of the two."""

    instance_id: Name
    block_keys: Keys = []
    token_ids: TokenIds = []


class GetCacheLocationRequest(Prompt):
    """Which blocks can be read, and where."""

    query_type: Query = "prefix"
    """``key``: each by itself; ``prefix``: up to the first that is not there; ``window``: the last blocks only;
    ``groups``: up to where each of the model's groups of KV caches has what it needs."""
    window: Annotated[int, Meta(ge=0, le=MAX_KEYS)] = 0
    """Blocks; for a query by window."""
    specs: list[str] = []
    """Parts that a location must have; none: any that it was written with."""
    groups: Annotated[list[KeyGroup], Meta(max_length=1024)] = []
    """For a query by groups. Each block of the prompt is looked up at most once for each group."""


class BlockLocations(Answer):
    """Where one block can be read, best first; empty: nowhere."""

    locations: list[LocationPlace]


class GetCacheLocationResponse(Answer):
    """The blocks that can be read."""

    first_block: int
    """Index of the first of ``blocks`` among the prompt's; of a query by groups, 0."""
    matched_blocks: int
    """How long a prefix of the prompt need not be computed; of a query by key, how many blocks were found."""
    lease_seconds: float
    """For so long all of these can be read, from when the request was sent."""
    blocks: list[BlockLocations]
    """Of a query by groups: what the first one needs of ``matched_blocks``, then the next one, and so on."""


class StartWriteCacheRequest(Prompt):
    """A wish to write those blocks of a prompt that are missing."""

    first_block: Annotated[int, Meta(ge=0)] = 0
    """Of those that the caller has; the ones before it are named only."""
    spec_sets: Annotated[list[str], Meta(max_length=MAX_KEYS)] = []
    """Of each block from ``first_block`` on, which of the instance's spec sets it has; empty: all parts of all."""
    write_timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    """After which the writer is taken for dead."""
    parents: Annotated[list[Annotated[int, Meta(ge=-1)]], Meta(max_length=MAX_KEYS)] = []
    """Of each block, the index of the block before it in its prompt; -1: there is none. Empty: each follows the one
    that is named before it."""
    whole: bool = False
    """Whether nothing is to be written where not all that is missing can be: a part would be of no use."""


class BlockToWrite(Answer):
    """What a block is to who asked to write it."""

    standing: Standing
    location: LocationPlace | None = None
    """Where to write it, if it is to be written."""


class StartWriteCacheResponse(Answer):
    """What is to be written, and where."""

    write_id: str
    """For FinishWriteCache; empty: nothing is to be written."""
    deadline: float
    """Unix time."""
    blocks: list[BlockToWrite]


class FinishWriteCacheRequest(Message):
    """What became of a write, by the keys of StartWriteCache or by the tokens and indices of its blocks."""

    instance_id: Name
    write_id: Annotated[str, Meta(min_length=1, max_length=64)]
    block_keys: Keys = []
    """Of all blocks of the write that were written or failed, in any order."""
    token_ids: TokenIds = []
    blocks: Annotated[list[int], Meta(max_length=MAX_KEYS)] = []
    """Which of the blocks that are named were written or failed. With ``block_keys``, empty: all of them."""
    failed_blocks: Annotated[list[int], Meta(max_length=MAX_KEYS)] = []
    """Which of ``block_keys``, or of the prompt's blocks, were not written as a whole."""


class FinishWriteCacheResponse(Answer):
    """What became of each block, in the order of the request."""

    endings: list[Ending]


class RemoveCacheRequest(Message):
    """Blocks that shall be gone, by key or by the tokens of their prompt."""

    instance_id: Name
    block_keys: Keys = []
    token_ids: TokenIds = []
    first_block: Annotated[int, Meta(ge=0)] = 0
    """Only those from here on."""


class TrimCacheRequest(Message):
    """A wish to have less of an instance, least recently used first."""

    instance_id: Name
    storage_type: str = ""
    """Only there; empty: in each type."""
    unused_for_seconds: Seconds = 0.0
    """Only what was not used for so long."""
    to_bytes: Bytes = 0
    """Until no more is left of a type."""


class RemovedResponse(Answer):
    """What ceased to serve; its bytes are given back when no reader can be left."""

    blocks: int
    bytes: int


class RegisterInstanceRequest(Message):
    """An instance as it shall be for ever."""

    instance: Instance


class InstanceResponse(Answer):
    """An instance as it is registered."""

    instance: Instance
    bytes_by_type: dict[str, int]


class OfInstance(Message):
    """A request about an instance."""

    instance_id: Name


class ListInstancesResponse(Answer):
    """All instances that the caller may see."""

    instances: list[InstanceResponse]


class PutInstanceGroupRequest(Message):
    """A group as it shall be from now on."""

    group: InstanceGroup
    namespace: Namespace = ""
    """Whose pools, aliases, zones and instances these are: those of others are kept. Empty: they are all."""


class OfGroup(Message):
    """A request about a group."""

    group: Name


class Usage(Answer):
    """An account: bytes."""

    used: int
    deleting: int
    committed: int
    """Used, or promised and not used."""


class GroupResponse(Answer):
    """A group, and what it uses."""

    group: InstanceGroup
    total: Usage
    types: dict[str, Usage]
    instances: int
    """How many are in it."""
    evicted_blocks: int
    """Since the group is there, from one storage type each."""
    evicted_bytes: int


class ListInstanceGroupsRequest(Message):
    """A wish to see the groups."""

    namespace: Namespace = ""
    """Only its pools, aliases, zones and instances are shown of each; empty: all."""


class ListInstanceGroupsResponse(Answer):
    """All groups."""

    groups: list[GroupResponse]


class RegisterStorageRequest(Message):
    """A storage as it shall be from now on."""

    storage: Storage


class OfStorage(Message):
    """A request about a storage."""

    name: Name


class StorageResponse(Answer):
    """A storage, what was last found of it, and what it has."""

    storage: Storage
    available: bool
    problem: str
    """Why it can't be used; empty: it can, if it is enabled."""
    since: float
    """Unix time since when it can be used, or can't."""
    used: int
    """Bytes."""
    shares_place_with: list[str] = []
    """Other storages that name the same place: only the first of them can be used."""


class ListStoragesResponse(Answer):
    """Storages."""

    storages: list[StorageResponse]


class PutServiceAccountRequest(Message):
    """A service account as it shall be from now on."""

    account: ServiceAccount


class OfServiceAccount(Message):
    """A request about a service account."""

    name: QualifiedName


class ListServiceAccountsResponse(Answer):
    """The service accounts that administrators have registered, without those that the manager was started with."""

    accounts: list[ServiceAccount]


class ErrorBody(Answer):
    """Why a request was not done."""

    code: str
    """As gRPC calls it: ``INVALID_ARGUMENT``, ``NOT_FOUND`` and so on."""
    message: str


class ErrorResponse(Answer):
    """The answer to a request that was not done."""

    error: ErrorBody


def field_names(kind: Any) -> list[str]:
    """The fields of a message."""
    return [field.name for field in msgspec.structs.fields(kind)]


def check_values(count: int) -> None:
    """Refuse a request before its values are read.

    Args:
        count: how many there are at most.

    Raises:
        ValueError: there may be more than ``MAX_VALUES``.
    """
    if count > MAX_VALUES:
        raise ValueError(f"a request names at most {MAX_VALUES} keys, tokens, indices and names; make several calls")
