"""One event as a line of JSON. No token is in it, and no key of a block as a whole."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

MANAGER: Final = "manager"
"""The caller of what the manager does by itself; service accounts have a slash in their names."""
LOST: Final = "lost"
"""Stands where events were dropped."""
KEY_DIGITS: Final = 16
_KEY_BYTES: Final = KEY_DIGITS // 2

Field = str | int | float | bytes
"""Of an event, as it waits to be written; bytes are keys, as :func:`joined` makes them."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened, to which blocks. Fields that an event has nothing for are not in its line.

    Blocks are named by the first 16 hexadecimal digits of their keys, which are hashes of their prompts: enough to tell
    blocks apart, and not enough to find one in a storage.
    """

    time: float
    """Unix time, in seconds."""
    event: str
    """The call, in small letters with underscores; or ``evict``, ``expire_write``, ``delete``, ``copy_up``,
    ``copy_down``, ``let_go``, ``lost``."""
    caller: str
    """Who asked, as authenticated; ``manager``: nobody did."""
    pod: str = ""
    """Of the caller, where its token is bound to one."""
    pool: str = ""
    """Whose instance it is, NAMESPACE/POOL."""
    group: str = ""
    instance: str = ""
    keys: list[str] = []
    """Of the blocks that were given out, are to be written, were written, removed, evicted, copied, or deleted."""
    failed: list[str] = []
    """... whose writer said that it had failed."""
    expired: list[str] = []
    """... whose writer came too late."""
    asked: int = 0
    """How many blocks the call named."""
    query: str = ""
    write_id: str = ""
    storage: str = ""
    """... that was changed, that blocks were copied to, or that they were deleted from."""
    type: str = ""
    """A storage type; of blocks that were evicted or let go: the only one that they ceased to serve from."""
    account: str = ""
    events: int = 0
    """That were lost here."""
    until: float = 0.0
    """When the last of these was; the first one was at ``time``."""

    @property
    def blocks(self) -> list[str]:
        """All blocks that it is about."""
        return [*self.keys, *self.failed, *self.expired]


def joined(keys: Sequence[bytes]) -> bytes:
    """Keys as they are in an event, one after the other; shorter ones are filled up with zeros."""
    made = b"".join([key[:_KEY_BYTES] for key in keys])
    if len(made) < _KEY_BYTES * len(keys):
        made = b"".join([key[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0") for key in keys])
    return made


def encode(time: float, fields: Mapping[str, Field]) -> bytes:
    """An event as a line.

    Args:
        time: Unix time.
        fields: those of :class:`Event`; what is empty is left out.
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
"""Reads a line; raises ``msgspec.DecodeError`` where it is none, and ignores fields that it does not know."""
