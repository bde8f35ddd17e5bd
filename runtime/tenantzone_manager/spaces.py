"""Names of the index's spaces, and codecs for the records in each space."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from tenantzone_manager.core import books
from tenantzone_manager.core.quota import Charge
from tenantzone_manager.core.records import decode_block, encode_block
from tenantzone_manager.core.settings import Evictions, Instance, InstanceGroup, ServiceAccount, Storage
from tenantzone_manager.core.slots import SlotFile, closed
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Codec
from tenantzone_manager.storages.types import STORAGE_TYPES

GROUPS: Final = "groups"
INSTANCES: Final = "instances"
MEMBERS: Final = "members"
"""Space with one record for each zone of a group. The record lists the names of the zone's instances in the group."""
STORAGES: Final = "storages"
SERVICE_ACCOUNTS: Final = "service-accounts"
EVICTIONS: Final = "evictions"
"""Space with the eviction totals, in one record for each group from which blocks were evicted."""
IDENTITY: Final = "identity"
"""Space with a single record, which contains the name of the index. Storages record this name as their owner."""


def blocks_of(instance: Instance) -> str:
    """Returns the space of an instance's blocks."""
    return f"blocks/{instance.group}/{instance.name}"


def slots_of(group: str, storage: str) -> str:
    """Returns the space with the records of a group's large files in a storage."""
    return f"slots/{group}/{storage}"


def members_of(group: str, zone: str) -> Address:
    """Returns the address of the record that lists the names of a zone's instances in a group."""
    return Address(MEMBERS, f"{group}/{zone}".encode())


@lru_cache(maxsize=4096)
def owner_of(space: str) -> books.Owner:
    """Returns the instance and group that own the blocks in a space."""
    _, group, instance = space.split("/")
    return books.Owner(instance, group)


def codec(space: str) -> Codec:
    """Returns the codec of the records in a space."""
    return _CODECS[space.partition("/")[0]]


def _effects(address: Address, before: Any, after: Any) -> tuple[list[Charge], list[books.RankChange]]:
    owner = owner_of(address.space)
    return books.charges(owner, before, after), books.rank_changes(owner, address.key, before, after)


def _without_ranks(address: Address) -> list[books.RankChange]:
    return books.without_ranks(owner_of(address.space), address.key, STORAGE_TYPES)


def _json(kind: Any) -> Codec:
    return Codec(msgspec.json.encode, msgspec.json.Decoder(kind).decode)


_CODECS: Final = {
    "blocks": Codec(encode_block, decode_block, _effects, _without_ranks),
    "slots": Codec(
        msgspec.msgpack.encode,
        msgspec.msgpack.Decoder(SlotFile).decode,
        stand_in=lambda address: closed(int(address.key.partition(b"/")[0])),
    ),
    GROUPS: _json(InstanceGroup),
    INSTANCES: _json(Instance),
    MEMBERS: _json(tuple[str, ...]),
    STORAGES: _json(Storage),
    SERVICE_ACCOUNTS: _json(ServiceAccount),
    EVICTIONS: _json(Evictions),
    IDENTITY: _json(str),
}
