"""What was asked of the manager, as a trace: JSON Lines, for whoever wants to replay it. No token is in it.

Each line has ``time`` (Unix, in seconds) and ``event``; the others are told in docs/kv-cache-manager.md. Keys of blocks
are hashes of their prompts; they are shortened to 16 hexadecimal digits, which tell blocks apart and find nothing.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final

_DIGITS: Final = 16


class Events:
    """The trace of one manager.

    Args:
        path: of the file, which is made or written on; None: nothing is noted.
        clock: Unix time.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._file: IO[str] | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", buffering=2**16)

    @property
    def is_on(self) -> bool:
        """Whether events are noted."""
        return self._file is not None

    def note(self, event: str, **fields: Any) -> None:
        """Write a line."""
        if self._file is not None:
            line = {"time": round(self._clock(), 6), "event": event, **fields}
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Hand what was noted to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._file.close()
            self._file = None


def shortened(keys: Sequence[bytes]) -> list[str]:
    """Keys as they are in a trace."""
    return [key.hex()[:_DIGITS] for key in keys]
