"""A real Redis, which can be killed and paused."""

from pathlib import Path

import redis

from hack.debian import ensure
from hack.harness.killable import START_SECONDS, KillableServer
from hack.ports import free_ports

TIMEOUT_SECONDS = 60.0
"""The clients' timeout: on a busy machine an answer may take seconds."""


class RedisServer(KillableServer):
    """Keeps all writes in an append-only file, from one start to the next.

    Args:
        folder: for that file, and its log.
        start_seconds: until it answers, at most; a large file takes a while.

    Raises:
        DebianError: this machine has no Redis and can get none.
    """

    def __init__(self, folder: Path, start_seconds: float = START_SECONDS) -> None:
        program = ensure("redis-server")
        (port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{port}/0"
        arguments = ("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", "")
        super().__init__("redis", folder, [program, *arguments, "--appendonly", "yes"], self._answers)
        self.start_seconds = start_seconds

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
