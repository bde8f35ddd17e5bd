"""Readers of trace formats, by the name of the format. To add a format, add a module and register it here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from tenantzone_replay.traces.load import Asked, TraceError
from tenantzone_replay.traces.readers import azure, burstgpt, kv_events, mooncake, qwen, recorded, sessions
from tenantzone_replay.traces.readers.lines import first_line
from tenantzone_replay.traces.readers.seen import Seen


class Reader(Protocol):
    """Reads the trace at ``path``. ``seen`` contains the state of the files from an earlier read, if any."""

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
"""Reader of each format. Each reader is a generator of the requests of a trace, in the order of arrival."""


def guess_format(path: Path, seen: Seen | None = None) -> str:
    """Returns the format of a trace, detected from its first line.

    Raises:
        TraceError: the first line matches no known format.
    """
    if path.is_dir():
        return "recorded"
    line = first_line(path, seen)
    # "sessions" precedes "mooncake", because a line with a user may also have the members of Mooncake's format.
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
    raise TraceError(f"{path}: can't detect the format from {line[:100]!r}; set format= to one of {', '.join(READERS)}")
