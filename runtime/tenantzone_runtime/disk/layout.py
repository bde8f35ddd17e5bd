"""Where the disk tier's files are.

    lock                                        held by the process that uses the folder
    incoming/NAME                               what is being written
    objects/FOLDER/KK/KEY-NONCE                 a chunk; FOLDER is of its seal, KK the first two digits of its key
    objects/FOLDER/KK/KEY-NONCE-BEFORE          one that is of use with others only; BEFORE is of the block before it

The nonce in the name makes each write a file of its own: none takes the place of another, and removing an old one never
removes a newer one of the same chunk.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_UNIT_BYTES = 4096
"""In which file systems give out the disk, as a rule."""
_NAME = re.compile(r"((?:[0-9a-f]{2}){5,110})-([0-9a-f]{24})(?:-([0-9a-f]{32}))?")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The name of one write of a chunk."""

    key: bytes
    """vLLM's: the block hash, and the group of the model's layers."""
    nonce: bytes
    before: bytes = b""
    """Which block of the prompt comes before this one; none: the chunk is of use by itself."""

    def __str__(self) -> str:
        parts = (self.key, self.nonce, self.before)
        return "-".join(part.hex() for part in parts if part)


def object_name(text: str) -> ObjectName | None:
    """The name that a file's name spells; None: it is no chunk's."""
    match = _NAME.fullmatch(text)
    return None if match is None else ObjectName(*(bytes.fromhex(part or "") for part in match.groups()))


class Layout:
    """The paths under one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = root / "lock"
        self.incoming = root / "incoming"
        self.objects = root / "objects"

    def object(self, folder: str, name: ObjectName) -> Path:
        """The path of a chunk's file."""
        return self.objects / folder / name.key.hex()[:2] / str(name)

    def temporary(self, name: ObjectName) -> Path:
        """The path under which it is written."""
        return self.incoming / str(name)


def bytes_on_disk(size: int) -> int:
    """What a file of this size takes of the disk."""
    return -(-size // _UNIT_BYTES) * _UNIT_BYTES
