"""Answers to GetCacheLocation, with a thousand blocks each: what one block adds to an answer is made once."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tenantzone_manager.reading import LocationPlace, Match, Readable
from tenantzone_manager.server.generated import manager_pb2
from tenantzone_manager.server.messages import BlockLocations

_ENCODER: Final = msgspec.json.Encoder()


def matched_blocks(match: Match, is_by_key: bool) -> int:
    """How many blocks of the prompt need not be computed; of a query by key, how many were found."""
    if is_by_key:
        return sum(bool(block.locations) for block in match.blocks)
    return match.hit or match.first + len(match.blocks)


def as_json(match: Match, matched: int, lease: float) -> bytes:
    """The answer in JSON."""
    blocks = [block.as_json or _block_json(block) for block in match.blocks]
    return _ENCODER.encode(
        {"first_block": match.first, "matched_blocks": matched, "lease_seconds": lease, "blocks": blocks}
    )


def as_proto(match: Match, matched: int, lease: float) -> bytes:
    """The answer as a Protobuf message: its fields, then a field for each block, one after the other."""
    head: bytes = manager_pb2.GetCacheLocationResponse(
        first_block=match.first, matched_blocks=matched, lease_seconds=lease
    ).SerializeToString()
    return head + b"".join([block.as_proto or _block_proto(block) for block in match.blocks])


def locations_to_proto(locations: Sequence[LocationPlace]) -> "manager_pb2.BlockLocations":
    """Where a block can be read."""
    return manager_pb2.BlockLocations(locations=[location_to_proto(location) for location in locations])


def location_to_proto(location: LocationPlace) -> "manager_pb2.CacheLocation":
    """A location."""
    specs = [manager_pb2.LocationSpec(name=spec.name, uri=spec.uri, size=spec.size) for spec in location.specs]
    return manager_pb2.CacheLocation(id=location.id, type=location.type, storage=location.storage, specs=specs)


def _block_json(block: Readable) -> msgspec.Raw:
    block.as_json = msgspec.Raw(_ENCODER.encode(BlockLocations(locations=block.locations)))
    return block.as_json


def _block_proto(block: Readable) -> bytes:
    # A message with this one block, and no other field, is that field as it stands in every message.
    only = manager_pb2.GetCacheLocationResponse(blocks=[locations_to_proto(block.locations)])
    block.as_proto = only.SerializeToString()
    return block.as_proto
