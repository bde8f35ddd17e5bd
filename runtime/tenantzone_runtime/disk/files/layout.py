"""The paths of the disk tier's files.

    lock                                        locked by the process that uses the folder
    incoming/NAME                               a file that is being written
    objects/FOLDER/KK/KEY-NONCE                 a chunk; FOLDER is its seal's folder, KK the first two digits of KEY
    objects/FOLDER/KK/KEY-NONCE-BEFORE          a chunk that is only useful with others; BEFORE is the previous block

Each write uses a new nonce, so no two writes use the same file name. So no file replaces another, and removing an old
file never removes a newer file of the same chunk.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_UNIT_BYTES = 4096
"""The usual allocation unit of file systems."""
_NAME = re.compile(r"((?:[0-9a-f]{2}){5,110})-([0-9a-f]{24})(?:-([0-9a-f]{32}))?")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The file name of a chunk. Each write of the chunk has another name, because the nonce differs."""

    key: bytes
    """vLLM's key of the chunk: the block's hash, followed by the number of the KV cache group."""
    nonce: bytes
    before: bytes = b""
    """Hash of the previous block of the prompt; empty if the chunk is useful on its own."""

    def __str__(self) -> str:
        parts = (self.key, self.nonce, self.before)
        return "-".join(part.hex() for part in parts if part)


def object_name(text: str) -> ObjectName | None:
    """Parse a file's name. Returns None if the text is not the name of a chunk's file."""
    match = _NAME.fullmatch(text)
    return None if match is None else ObjectName(*(bytes.fromhex(part or "") for part in match.groups()))


class Layout:
    """The paths of the tier's files under one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = root / "lock"
        self.incoming = root / "incoming"
        self.objects = root / "objects"

    def object(self, folder: str, name: ObjectName) -> Path:
        """Returns the path of a chunk's file."""
        return self.objects / folder / name.key.hex()[:2] / str(name)

    def temporary(self, name: ObjectName) -> Path:
        """Returns the temporary path of a chunk's file, which is used until the file is complete."""
        return self.incoming / str(name)


def bytes_on_disk(size: int) -> int:
    """Returns the disk space in bytes that a file with ``size`` bytes takes up."""
    return -(-size // _UNIT_BYTES) * _UNIT_BYTES
