"""A server as a process of its own, which can be killed, paused and started again where it was."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from hack.controlplane.server import Server

START_SECONDS: Final = 60.0
"""Until a server answers, unless it is said to take longer."""

_STOP_SECONDS = 30.0


class KillableServer:
    """A server that :meth:`start` starts again after each kill, or that runs during a ``with`` block.

    Args:
        name: what it is, for people; its log is named after it.
        folder: for its log, and a lock that is open while it runs.
        command: the program and its arguments.
        is_ready: whether it answers.
        environment: further variables.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        command: Sequence[str | Path],
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.start_seconds = START_SECONDS
        self._command = command
        self._is_ready = is_ready
        self._environment = dict(environment or {})
        self._server: Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            RuntimeError: it has ended.
        """
        environment = {**os.environ, **self._environment}
        with (self.folder / "lock").open("w") as lock:
            self._server = Server(self._command, log=self.log, keep_open=lock.fileno(), env=environment)
        until = time.monotonic() + self.start_seconds
        while not self._is_ready():
            if not self._server.is_running or time.monotonic() > until:
                raise RuntimeError(f"{self.name} did not start:\n{self.log.read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it like a machine's kernel would; does nothing if it has ended."""
        if self._server is not None and self._server.is_running:
            self._signal(signal.SIGKILL)
            self._server.stop()

    def terminate(self) -> None:
        """End it with SIGTERM, and wait for its exit; does nothing if it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs after half a minute.
        """
        if self._server is not None and self._server.is_running:
            self._signal(signal.SIGTERM)
            self._server.wait(_STOP_SECONDS)

    @property
    def pids(self) -> list[int]:
        """Returns the pids of the program; several, if it has forked.

        Raises:
            RuntimeError: it was not started.
        """
        if self._server is None:
            raise RuntimeError("it was not started")
        holder = self._server.pid
        return [int(child) for child in Path(f"/proc/{holder}/task/{holder}/children").read_text().split()]

    def pause(self) -> None:
        """Have it stand still, with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)
