"""Encoding of long answers. The encoded form of each block is cached and reused."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tenantzone_manager.reads.reading import LocationPlace, Match, Readable
from tenantzone_manager.server.generated import manager_pb2
from tenantzone_manager.server.messages import BlockLocations, StartWriteCacheResponse
from tenantzone_manager.turns import READ_AT_ONCE, Turns

_ENCODER: Final = msgspec.json.Encoder()


def matched_blocks(match: Match, is_by_key: bool) -> int:
    """Returns how many blocks of the prompt need not be computed. For a query by key, returns how many were found."""
    if is_by_key:
        return sum(bool(block.locations) for block in match.blocks)
    return match.hit or match.first + len(match.blocks)


class AnswerEncoder:
    """Encodes long answers part by part.

    Args:
        turns: lets callers take turns, so that a long answer delays no other caller for long.
        lease: seconds for which found blocks can be read.
    """

    def __init__(self, turns: Turns, lease: float) -> None:
        self._turns = turns
        self._lease = lease

    async def match_as_json(self, caller: str, match: Match, matched: int) -> bytes:
        """Returns the answer to GetCacheLocation in JSON.

        Args:
            caller: name under which the encoder waits for turns.
            match: found blocks.
            matched: number of the prompt's blocks that need not be computed.
        """
        blocks: list[msgspec.Raw] = []
        async for part in self._turns.parts(caller, len(match.blocks), READ_AT_ONCE):
            blocks += [block.as_json or _block_json(block) for block in match.blocks[part]]
        return _ENCODER.encode(
            {"first_block": match.first, "matched_blocks": matched, "lease_seconds": self._lease, "blocks": blocks}
        )

    async def match_as_proto(self, caller: str, match: Match, matched: int) -> bytes:
        """Returns the answer to GetCacheLocation as a Protobuf message.

        The message is the encoding of its scalar fields, followed by the encoding of each block.
        """
        head: bytes = manager_pb2.GetCacheLocationResponse(
            first_block=match.first, matched_blocks=matched, lease_seconds=self._lease
        ).SerializeToString()
        blocks: list[bytes] = []
        async for part in self._turns.parts(caller, len(match.blocks), READ_AT_ONCE):
            blocks += [block.as_proto or _block_proto(block) for block in match.blocks[part]]
        return head + b"".join(blocks)

    async def started_as_json(self, caller: str, started: StartWriteCacheResponse) -> bytes:
        """Returns the answer to StartWriteCache in JSON."""
        blocks: list[bytes] = []
        async for part in self._turns.parts(caller, len(started.blocks), READ_AT_ONCE):
            blocks.append(_ENCODER.encode(started.blocks[part])[1:-1])
        all_blocks = msgspec.Raw(b"[%b]" % b",".join(blocks))
        return _ENCODER.encode({"write_id": started.write_id, "deadline": started.deadline, "blocks": all_blocks})

    async def started_as_proto(self, caller: str, started: StartWriteCacheResponse) -> bytes:
        """Returns the answer to StartWriteCache as a Protobuf message.

        The answer is a concatenation of several messages. Protobuf decodes such a concatenation as one message, and
        appends the values of repeated fields.
        """
        head = manager_pb2.StartWriteCacheResponse(write_id=started.write_id, deadline=started.deadline)
        encoded: list[bytes] = [head.SerializeToString()]
        async for part in self._turns.parts(caller, len(started.blocks), READ_AT_ONCE):
            blocks = [
                manager_pb2.BlockToWrite(
                    standing=block.standing.value,
                    location=None if block.location is None else location_to_proto(block.location),
                )
                for block in started.blocks[part]
            ]
            encoded.append(manager_pb2.StartWriteCacheResponse(blocks=blocks).SerializeToString())
        return b"".join(encoded)


def locations_to_proto(locations: Sequence[LocationPlace]) -> "manager_pb2.BlockLocations":
    """Returns a message with the locations where a block can be read."""
    return manager_pb2.BlockLocations(locations=[location_to_proto(location) for location in locations])


def location_to_proto(location: LocationPlace) -> "manager_pb2.CacheLocation":
    """Returns a message with a location."""
    specs = [manager_pb2.LocationSpec(name=spec.name, uri=spec.uri, size=spec.size) for spec in location.specs]
    return manager_pb2.CacheLocation(id=location.id, type=location.type, storage=location.storage, specs=specs)


def _block_json(block: Readable) -> msgspec.Raw:
    block.as_json = msgspec.Raw(_ENCODER.encode(BlockLocations(locations=block.locations)))
    return block.as_json


def _block_proto(block: Readable) -> bytes:
    # The encoding of a message with only this block is also the encoding of this block's field in a longer message.
    only = manager_pb2.GetCacheLocationResponse(blocks=[locations_to_proto(block.locations)])
    block.as_proto = only.SerializeToString()
    return block.as_proto
