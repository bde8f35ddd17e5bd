"""What the KV-cache manager answers, as far as an engine reads it."""

import msgspec


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a location."""

    name: str
    uri: str
    size: int
    """Bytes."""


class Location(msgspec.Struct, frozen=True):
    """A place of one block."""

    id: str
    """No other write has the same."""
    type: str
    storage: str
    """Its name."""
    specs: list[Part]


class BlockLocations(msgspec.Struct, frozen=True):
    """Where one block can be read, best first."""

    locations: list[Location] = []


class CacheLocations(msgspec.Struct, frozen=True):
    """The blocks of a prompt's beginning that can be read."""

    blocks: list[BlockLocations] = []
    matched_blocks: int = 0
    """How many of the prompt's blocks these are; where groups were asked about, more than one may be of the same."""
    lease_seconds: float = 0.0
    """For so long, from when it was asked."""


class BlockToWrite(msgspec.Struct, frozen=True):
    """What a block is to who asked to write it."""

    standing: str
    """``write``, ``serving``, ``writing``, ``no_prefix`` or ``no_room``."""
    location: Location | None = None


class StartedWrite(msgspec.Struct, frozen=True):
    """Where to write."""

    write_id: str = ""
    """Empty: nothing is to be written."""
    blocks: list[BlockToWrite] = []


class WriteEndings(msgspec.Struct, frozen=True):
    """What became of each block: ``serving``, ``failed`` or ``expired``."""

    endings: list[str] = []


class Removed(msgspec.Struct, frozen=True):
    """What is served no more."""

    blocks: int = 0


class RegisteredInstance(msgspec.Struct, frozen=True):
    """An instance; what else it is, only its engines know."""

    name: str


class InstanceUse(msgspec.Struct, frozen=True):
    """What an instance holds."""

    instance: RegisteredInstance
    bytes_by_type: dict[str, int] = {}


class Instances(msgspec.Struct, frozen=True):
    """What the caller's instances hold."""

    instances: list[InstanceUse] = []


class Problem(msgspec.Struct, frozen=True):
    """Why it was not done."""

    code: str
    message: str


class Refusal(msgspec.Struct, frozen=True):
    """The answer in place of another."""

    error: Problem
