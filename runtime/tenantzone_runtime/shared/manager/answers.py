"""The KV-cache manager's answers, with only the fields that an engine reads."""

import msgspec


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a location, such as a file or an object."""

    name: str
    uri: str
    size: int
    """Size of the part in bytes."""


class Location(msgspec.Struct, frozen=True):
    """A location at which one block is stored or will be written."""

    id: str
    """Id of the location. It is unique: another write of the same block gets another id."""
    type: str
    storage: str
    """Name of the storage."""
    specs: list[Part]


class BlockLocations(msgspec.Struct, frozen=True):
    """The locations from which one block can be read, the preferred location first."""

    locations: list[Location] = []


class CacheLocations(msgspec.Struct, frozen=True):
    """The blocks at the beginning of a prompt that can be read, and where they are."""

    blocks: list[BlockLocations] = []
    matched_blocks: int = 0
    """Number of readable blocks of the prompt. If there are several groups, ``blocks`` may have more entries."""
    lease_seconds: float = 0.0
    """Seconds, counted from the query, for which the locations stay valid."""


class BlockToWrite(msgspec.Struct, frozen=True):
    """The state of one block in an answer to a writer, and the location to write to."""

    standing: str
    """``write``, ``serving``, ``writing``, ``no_prefix`` or ``no_room``."""
    location: Location | None = None


class StartedWrite(msgspec.Struct, frozen=True):
    """The answer to a writer that wants to store blocks."""

    write_id: str = ""
    """Id of the write; empty if there is no block to write."""
    blocks: list[BlockToWrite] = []


class WriteEndings(msgspec.Struct, frozen=True):
    """The answer to a writer that reported the end of a write."""

    endings: list[str] = []
    """The outcome of each block: ``serving``, ``failed`` or ``expired``."""


class Removed(msgspec.Struct, frozen=True):
    """The answer to a call that removes blocks."""

    blocks: int = 0
    """Number of removed blocks."""


class RegisteredInstance(msgspec.Struct, frozen=True):
    """An instance in the manager. Engines need only the instance's name."""

    name: str


class InstanceUse(msgspec.Struct, frozen=True):
    """One instance, and the number of bytes that it uses."""

    instance: RegisteredInstance
    bytes_by_type: dict[str, int] = {}
    """Number of stored bytes, by the type of storage."""


class Instances(msgspec.Struct, frozen=True):
    """All instances that the caller may see, with their usage."""

    instances: list[InstanceUse] = []


class Problem(msgspec.Struct, frozen=True):
    """The reason why a call failed."""

    code: str
    message: str


class Refusal(msgspec.Struct, frozen=True):
    """The manager's answer to a call that failed."""

    error: Problem
