"""Readers of traces, by name. A new format is a module, and a line here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from tenantzone_replay.load import Asked, TraceError
from tenantzone_replay.readers import azure, burstgpt, kv_events, mooncake, qwen, recorded, sessions
from tenantzone_replay.readers.lines import first_line
from tenantzone_replay.readers.seen import Seen


class Reader(Protocol):
    """Reads a trace: the file, and its state when it was read before."""

    def __call__(self, path: Path, seen: Seen | None = None) -> Iterator[Asked]: ...


READERS: Final[Mapping[str, Reader]] = {
    "mooncake": mooncake.read,
    "qwen": qwen.read,
    "azure": azure.read,
    "burstgpt": burstgpt.read,
    "sessions": sessions.read,
    "kv-events": kv_events.read,
    "recorded": recorded.read,
}
"""Each yields the requests of a file in the order of their arrival, and reads lazily."""


def guess_format(path: Path, seen: Seen | None = None) -> str:
    """Returns the format of a trace, by its first line.

    Raises:
        TraceError: the line matches no format.
    """
    if path.is_dir():
        return "recorded"
    line = first_line(path, seen)
    # Lines that name users may also have the members that identify Mooncake's traces.
    for name, module in (
        ("recorded", recorded),
        ("kv-events", kv_events),
        ("qwen", qwen),
        ("sessions", sessions),
        ("mooncake", mooncake),
        ("azure", azure),
        ("burstgpt", burstgpt),
    ):
        if module.looks_like(line):
            return name
    raise TraceError(f"{path}: no format is known that begins so: {line[:100]!r}; name one of {', '.join(READERS)}")
