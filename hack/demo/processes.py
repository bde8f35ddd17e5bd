"""The demo's processes, which have a log each, are checked while they are needed, and are stopped together."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from hack.controlplane.server import Server


class ProcessDiedError(Exception):
    """A process exited while it was needed; the message has the end of its log."""


class Processes:
    """Processes that end together, at the end of a ``with`` block or when this process ends for any reason."""

    def __init__(self, logs: Path, lock: int) -> None:
        """Begin without any process.

        Args:
            logs: the folder for the log of each process, ``NAME.log``.
            lock: a file descriptor that each process keeps open until it ends.
        """
        self._logs = logs
        self._lock = lock
        self._running: dict[str, Server] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        log = self._logs / f"{name}.log"
        log.unlink(missing_ok=True)
        self._running[name] = Server(command, log=log, keep_open=self._lock, env=env)

    def check(self) -> None:
        """Check that all processes are still running.

        Raises:
            ProcessDiedError: a process has exited.
        """
        for name, process in self._running.items():
            if not process.is_running:
                raise ProcessDiedError(f"{name} has ended; {process.log_tail()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor() as all_at_once:
            list(all_at_once.map(Server.stop, self._running.values()))
        self._running.clear()
