"""A real Redis, which can be killed and paused."""

import os
import signal
import subprocess
from pathlib import Path

import redis

from hack.debian import ensure
from hack.demo.console import wait_until
from hack.ports import free_ports

TIMEOUT_SECONDS = 60.0
"""For whoever asks: on a machine that is busy an answer may take seconds."""


class RedisServer:
    """Keeps all that it was told in an append-only file, from one start to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = ensure("redis-server")
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        arguments = ("--bind", "127.0.0.1", "--port", str(self._port), "--dir", str(self._folder), "--save", "")
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *arguments, "--appendonly", "yes"], stdout=log, stderr=log)
        wait_until(self._answers, lambda: "Redis to answer", timeout=60, poll=0.02)

    def kill(self) -> None:
        """As a machine's kernel would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
