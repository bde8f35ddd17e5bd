"""One event as a line of JSON, which contains neither tokens nor complete block keys."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

MANAGER: Final = "manager"
"""Caller in events of background work. No service account has this name, because all their names contain a slash."""
LOST: Final = "lost"
"""Name of the event that replaces dropped events."""
KEY_DIGITS: Final = 16
_KEY_BYTES: Final = KEY_DIGITS // 2

Field = str | int | float | bytes
"""The value of a field of a queued event. A value of type ``bytes`` contains keys, as returned by :func:`joined`."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event and its blocks. Empty fields are left out of the line.

    The first 16 hexadecimal digits of a key identify a block. Keys are hashes of prompts, so these digits suffice to
    distinguish blocks, but not to find a block in a storage.
    """

    time: float
    """Unix time of the event, in seconds."""
    event: str
    """Name of the call in lower case with underscores, or of a background event.

    Background events are ``evict``, ``expire_write``, ``delete``, ``copy_up``, ``copy_down``, ``let_go`` and ``lost``.
    """
    caller: str
    """Name of the authenticated caller, or ``manager`` for background work."""
    pod: str = ""
    """Name of the pod to which the caller's token is bound."""
    pool: str = ""
    """Pool of the instance, NAMESPACE/POOL."""
    group: str = ""
    instance: str = ""
    keys: list[str] = []
    """Keys of the event's blocks, for example of blocks that were returned, begun, written, removed or evicted."""
    failed: list[str] = []
    """Keys of the blocks whose writer reported a failure."""
    expired: list[str] = []
    """Keys of the blocks that were written too late."""
    asked: int = 0
    """Number of blocks in the request."""
    query: str = ""
    write_id: str = ""
    storage: str = ""
    """Name of the storage whose settings were changed, to which blocks were copied, or from which they were deleted."""
    type: str = ""
    """Storage type. After ``evict`` and ``let_go``, the blocks may still be available in other storage types."""
    account: str = ""
    events: int = 0
    """Number of lost events."""
    until: float = 0.0
    """Unix time of the last lost event. The field ``time`` contains the Unix time of the first lost event."""

    @property
    def blocks(self) -> list[str]:
        """Keys of all blocks of the event, whatever their outcome."""
        return [*self.keys, *self.failed, *self.expired]


def joined(keys: Sequence[bytes]) -> bytes:
    """Returns the concatenated keys of an event, each truncated or zero-padded to 8 bytes (16 digits)."""
    made = b"".join([key[:_KEY_BYTES] for key in keys])
    if len(made) < _KEY_BYTES * len(keys):
        made = b"".join([key[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0") for key in keys])
    return made


def encode(time: float, fields: Mapping[str, Field]) -> bytes:
    """Returns an event as a line of JSON.

    Args:
        time: Unix time of the event.
        fields: other fields of :class:`Event`. Empty fields are left out.
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
"""Decodes a line, ignoring unknown fields; raises ``msgspec.DecodeError`` if the line is not an event."""
