"""One event as a line of JSON, without tokens and complete block keys."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

MANAGER: Final = "manager"
"""The caller in events of background work; service accounts have a slash in their names."""
LOST: Final = "lost"
"""The event that replaces dropped events."""
KEY_DIGITS: Final = 16
_KEY_BYTES: Final = KEY_DIGITS // 2

Field = str | int | float | bytes
"""A value of an event that waits to be written; bytes are keys from :func:`joined`."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event and its blocks. Empty fields are not in its line.

    Blocks are named by the first 16 hexadecimal digits of their keys, which are hashes of their prompts: enough to
    distinguish blocks, and not enough to find one in a storage.
    """

    time: float
    """Unix time, in seconds."""
    event: str
    """The call, in lower case with underscores; or ``evict``, ``expire_write``, ``delete``, ``copy_up``,
    ``copy_down``, ``let_go``, ``lost``."""
    caller: str
    """The authenticated caller; ``manager``: background work."""
    pod: str = ""
    """The pod that the caller's token is bound to."""
    pool: str = ""
    """The pool of the instance, NAMESPACE/POOL."""
    group: str = ""
    instance: str = ""
    keys: list[str] = []
    """Keys of the blocks that were returned, are to be written, were written, removed, evicted, copied, or deleted."""
    failed: list[str] = []
    """Keys of the blocks whose writer reported a failure."""
    expired: list[str] = []
    """Keys of the blocks whose writer was too late."""
    asked: int = 0
    """The number of blocks in the request."""
    query: str = ""
    write_id: str = ""
    storage: str = ""
    """The storage that was changed, that blocks were copied to, or that they were deleted from."""
    type: str = ""
    """A storage type; for ``evict`` and ``let_go``: the only one that the blocks ceased to serve from."""
    account: str = ""
    events: int = 0
    """The number of lost events."""
    until: float = 0.0
    """Unix time of the last lost event; the first one was at ``time``."""

    @property
    def blocks(self) -> list[str]:
        """The keys of all its blocks."""
        return [*self.keys, *self.failed, *self.expired]


def joined(keys: Sequence[bytes]) -> bytes:
    """Returns the keys of an event, shortened to 16 digits or padded with zeros, and joined."""
    made = b"".join([key[:_KEY_BYTES] for key in keys])
    if len(made) < _KEY_BYTES * len(keys):
        made = b"".join([key[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0") for key in keys])
    return made


def encode(time: float, fields: Mapping[str, Field]) -> bytes:
    """Returns an event as a line.

    Args:
        time: Unix time.
        fields: fields of :class:`Event`; empty ones are left out.
    """
    line: dict[str, Any] = {"time": round(time, 6)}
    for name, value in fields.items():
        if value:
            line[name] = _list(value) if isinstance(value, bytes) else value
    return msgspec.json.encode(line) + b"\n"


def _list(keys: bytes) -> msgspec.Raw:
    digits = keys.hex(",", _KEY_BYTES).replace(",", '","')
    return msgspec.Raw(f'["{digits}"]'.encode())


decode: Final = msgspec.json.Decoder(Event).decode
"""Reads a line; raises ``msgspec.DecodeError`` if it is not an event, and ignores unknown fields."""
