"""The parts of the KV-cache manager's answers that an engine reads."""

import msgspec


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a location."""

    name: str
    uri: str
    size: int
    """The size in bytes."""


class Location(msgspec.Struct, frozen=True):
    """A location at which one block is stored or will be written."""

    id: str
    """Unique id of the write."""
    type: str
    storage: str
    """Name of the storage."""
    specs: list[Part]


class BlockLocations(msgspec.Struct, frozen=True):
    """The locations from which one block can be read, the preferred one first."""

    locations: list[Location] = []


class CacheLocations(msgspec.Struct, frozen=True):
    """The readable blocks at the beginning of a prompt."""

    blocks: list[BlockLocations] = []
    matched_blocks: int = 0
    """Number of the prompt's blocks that were found. With several groups, ``blocks`` may have several entries for each.
    """
    lease_seconds: float = 0.0
    """Seconds from the query for which the locations stay valid."""


class BlockToWrite(msgspec.Struct, frozen=True):
    """The state of a block for a writer."""

    standing: str
    """``write``, ``serving``, ``writing``, ``no_prefix`` or ``no_room``."""
    location: Location | None = None


class StartedWrite(msgspec.Struct, frozen=True):
    """The locations to write to."""

    write_id: str = ""
    """Id of the write; empty if no block must be written."""
    blocks: list[BlockToWrite] = []


class WriteEndings(msgspec.Struct, frozen=True):
    """The outcome of each block: ``serving``, ``failed`` or ``expired``."""

    endings: list[str] = []


class Removed(msgspec.Struct, frozen=True):
    """The number of removed blocks, which can't be found any more."""

    blocks: int = 0


class RegisteredInstance(msgspec.Struct, frozen=True):
    """An instance. Engines need only its name; its other properties are ignored."""

    name: str


class InstanceUse(msgspec.Struct, frozen=True):
    """The usage of an instance."""

    instance: RegisteredInstance
    bytes_by_type: dict[str, int] = {}


class Instances(msgspec.Struct, frozen=True):
    """The usage of the caller's instances."""

    instances: list[InstanceUse] = []


class Problem(msgspec.Struct, frozen=True):
    """The reason why a call failed."""

    code: str
    message: str


class Refusal(msgspec.Struct, frozen=True):
    """The answer of a failed call."""

    error: Problem
