"""What each API server process enforces, in one file per process in the folder that it shares with the engine core.

A process writes its own file and no other. The engine core reads all of them for its report, and removes those of
processes that have ended.
"""

import json
import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, TypeAdapter

from tenantzone_runtime.state_folder import check_state_folder

_PREFIX: Final = "api-server-"
_SUFFIX: Final = ".json"
_MAX_BYTES: Final = 4096
"""Of a file; a state has about 300."""
_ENDED: Final = frozenset("ZXx")
"""States of a process in ``/proc`` that has ended, even if its parent has not noticed."""


@dataclass(frozen=True, slots=True)
class ApiServerState:
    """What one API server process enforces."""

    process: Annotated[int, Field(gt=0)]
    """Its process id."""
    started: int
    """The time at which the process started, in clock ticks since the machine did: process ids are used again."""
    config_generation: int | None
    config_hash: str | None
    """None: no config is in force yet."""
    keys: str
    """The digest of its API keys; see ``KeyRing.digest``."""
    salt_key: str
    """The id of the pool's salt key; empty: the engine has one of its own."""
    unix_time: float
    """The time at which this was written."""

    @property
    def is_running(self) -> bool:
        """Whether the process still runs."""
        return start_of(self.process) == self.started

    def is_in(self, folder: Path) -> bool:
        """Whether the folder has a file of this process."""
        return _path(folder, self.process).exists()

    def write(self, folder: Path) -> None:
        """Write the state to its file, whole or not at all.

        Raises:
            OSError: it can't be written; FileNotFoundError if the folder is gone, which the engine core makes again;
                UnsafeFolder if another user could write into it.
        """
        check_state_folder(folder)
        path = _path(folder, self.process)
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(json.dumps(asdict(self)))
        new.replace(path)


_STATES: Final = TypeAdapter(ApiServerState)


def read_states(folder: Path) -> Sequence[ApiServerState]:
    """The state of each API server process that runs, by process id; removes the files of those that have ended.

    A folder that another user could write into is not read.
    """
    states = []
    try:
        check_state_folder(folder)
        paths = sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))
    except OSError:
        return ()
    for path in paths:
        state = _read(path)
        if state is None:
            continue
        if state.is_running:
            states.append(state)
        else:
            with suppress(OSError):
                path.unlink()
    return sorted(states, key=lambda state: state.process)


def remove_state(folder: Path) -> None:
    """Remove the file of this process, which ends."""
    _path(folder, os.getpid()).unlink(missing_ok=True)


def state_of_this_process(
    config_generation: int | None, config_hash: str | None, keys: str, salt_key: str
) -> ApiServerState:
    """The state of this process now; for the arguments, see `ApiServerState`."""
    process = os.getpid()
    started = start_of(process)
    assert started is not None, "this process runs"
    return ApiServerState(process, started, config_generation, config_hash, keys, salt_key, time.time())


def start_of(process: int) -> int | None:
    """The time at which a process started, in clock ticks since the machine did; None if it does not run."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name comes second, in parentheses, and may have any of these characters in it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in _ENDED else int(fields[19])


def _path(folder: Path, process: int) -> Path:
    return folder / f"{_PREFIX}{process}{_SUFFIX}"


def _read(path: Path) -> ApiServerState | None:
    """Read a state from its file; None if there is none, or if it is not what a process writes."""
    try:
        content = _content(path)
        if len(content) > _MAX_BYTES:
            return None
        state = _STATES.validate_json(content, strict=True)
    except (OSError, ValueError):
        return None
    return state if path == _path(path.parent, state.process) else None


def _content(path: Path) -> bytes:
    """The content of a regular file, at most one byte more than a state may have.

    Raises:
        OSError: it can't be read, or it is a link, a pipe or another thing that could block the reader.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(_MAX_BYTES + 1)
