"""Files in which API server processes report to the engine core which config they enforce.

Each process writes one file in a folder that is shared with the engine core. The engine core reads all files for its
report, and removes the files of processes that have ended.
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
"""Maximum size of a file in bytes. A state has about 300 bytes."""
_ENDED: Final = frozenset("ZXx")
"""The states in ``/proc`` of a process that has ended, including a zombie."""


@dataclass(frozen=True, slots=True)
class ApiServerState:
    """The config that one API server process enforces."""

    process: Annotated[int, Field(gt=0)]
    """The process id."""
    started: int
    """Start time of the process in clock ticks since boot, because a process id alone may be reused."""
    config_generation: int | None
    config_hash: str | None
    """Hash of the config that the process enforces; None if it has no config yet."""
    keys: str
    """Digest of the process's API keys; see ``KeyRing.digest``."""
    salt_key: str
    """Id of the pool's salt key; empty if the engine uses its own key."""
    unix_time: float
    """Unix time at which the state was made."""

    @property
    def is_running(self) -> bool:
        """Whether the process that wrote this state is still running."""
        return start_of(self.process) == self.started

    def is_in(self, folder: Path) -> bool:
        """Returns whether the folder has a file of the process that wrote this state."""
        return _path(folder, self.process).exists()

    def write(self, folder: Path) -> None:
        """Write the state to the process's file atomically.

        Raises:
            FileNotFoundError: the folder was removed. The engine core creates it again.
            UnsafeFolder: another user could write to the folder.
            OSError: the file can't be written.
        """
        check_state_folder(folder)
        path = _path(folder, self.process)
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(json.dumps(asdict(self)))
        new.replace(path)


_STATES: Final = TypeAdapter(ApiServerState)


def read_states(folder: Path) -> Sequence[ApiServerState]:
    """Returns the states of running API server processes, sorted by process id.

    Also removes the files of processes that have ended. Returns no states if another user could write to the folder.
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
    """Remove the file of this process. Called before the process ends."""
    _path(folder, os.getpid()).unlink(missing_ok=True)


def state_of_this_process(
    config_generation: int | None, config_hash: str | None, keys: str, salt_key: str
) -> ApiServerState:
    """Returns the current state of this process; for the arguments, see `ApiServerState`."""
    process = os.getpid()
    started = start_of(process)
    assert started is not None, "this process has a start time"
    return ApiServerState(process, started, config_generation, config_hash, keys, salt_key, time.time())


def start_of(process: int) -> int | None:
    """Returns the start time of a process in clock ticks since boot; None if the process is not running."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field is the process's name in parentheses. The name may contain spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in _ENDED else int(fields[19])


def _path(folder: Path, process: int) -> Path:
    return folder / f"{_PREFIX}{process}{_SUFFIX}"


def _read(path: Path) -> ApiServerState | None:
    """Read a state from a file. Returns None if the file is missing or invalid."""
    try:
        content = _content(path)
        if len(content) > _MAX_BYTES:
            return None
        state = _STATES.validate_json(content, strict=True)
    except (OSError, ValueError):
        return None
    return state if path == _path(path.parent, state.process) else None


def _content(path: Path) -> bytes:
    """Returns the beginning of a regular file, up to one byte more than the maximum size of a state.

    Raises:
        OSError: the file can't be read, or is a link, a pipe or another file that could block the reader.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(_MAX_BYTES + 1)
