"""A cluster that outlives the command that started it: a keeper process in the background holds it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType

from hack.controlplane.cluster import ClusterError

_STOP_SECONDS = 60.0


def start(folder: Path, *, module: str = "hack.controlplane") -> None:
    """Start a cluster in the folder and return when it is ready; does nothing if it is.

    Args:
        folder: of its state.
        module: run as ``python -m MODULE run --folder FOLDER``, it keeps the cluster.

    Raises:
        ClusterError: it does not come up.
    """
    if keeper_of(folder) is not None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "keeper.log"
    with log.open("w") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", module, "run", "--folder", folder],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    while keeper_of(folder) is None:
        if keeper.poll() is not None:
            raise ClusterError(f"the cluster did not start:\n{log.read_text().strip()}")
        time.sleep(0.1)


def stop(folder: Path) -> bool:
    """End the cluster in the folder and wait for it. Says whether there was one.

    Raises:
        ClusterError: it does not end.
    """
    keeper = keeper_of(folder)
    if keeper is None:
        return False
    os.kill(keeper, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while keeper_of(folder) is not None:
        if time.monotonic() > deadline:
            raise ClusterError(f"process {keeper}, which holds the cluster in {folder}, does not end")
        time.sleep(0.05)
    return True


def keep(folder: Path, cluster: AbstractContextManager[object]) -> None:
    """Run a cluster until this process gets a signal to stop."""
    signal.signal(signal.SIGTERM, _leave)
    with cluster:
        record_keeper(folder)
        signal.pause()


def record_keeper(folder: Path) -> None:
    """Say that this process holds what runs in the folder."""
    _file(folder).write_text(f"{os.getpid()} {_birth(os.getpid())}")


def keeper_of(folder: Path) -> int | None:
    """The process that holds what runs in the folder, or None."""
    try:
        pid, birth = _file(folder).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    # A keeper leaves its file behind, and its pid may belong to another process by now.
    return int(pid) if _birth(int(pid)) == birth else None


def _file(folder: Path) -> Path:
    return folder / "keeper.pid"


def _birth(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None if it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def _leave(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
