"""A KV-cache manager as a process of its own, which can be killed, paused and started again."""

import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hack.controlplane.server import Server
from hack.ports import free_ports

START_SECONDS: Final = 60.0
ADMIN: Final = "administrator"
"""The token of the one who registers storages and groups."""


class CacheManagerProcess:
    """A manager on loopback with files of its own; it knows its callers by tokens.

    Args:
        folder: for its index, its tokens, its log, and ``storage``, a folder for blocks.
        pools: ``NAMESPACE/POOL`` by the token of its engines.
        index: where the index is; None: a file in ``folder``.
        arguments: more of its own.
        tls: what who asks it over https goes by; None: it is served without TLS.
    """

    def __init__(
        self,
        folder: Path,
        pools: Mapping[str, str],
        index: str | None = None,
        arguments: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.storage.mkdir(parents=True)
        self.log = folder / "manager.log"
        self.events = folder / "events.jsonl"
        self.port, self.grpc_port = free_ports(2)
        self._tls = tls
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        tokens = folder / "tokens.json"
        tokens.write_text(json.dumps({ADMIN: {"admin": True}} | {token: {"pool": pools[token]} for token in pools}))
        self._command = [
            *(sys.executable, "-m", "tenantzone_manager", "--tokens", str(tokens)),
            *("--index", index or str(folder / "index.db"), "--events", str(self.events)),
            *("--listen", f"127.0.0.1:{self.port}", "--grpc", f"127.0.0.1:{self.grpc_port}", *arguments),
        ]
        self._server: Server | None = None

    def start(self) -> None:
        """Start it, and wait until its index answers.

        Raises:
            RuntimeError: it has ended.
        """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with (self.folder / "lock").open("w") as lock:
            self._server = Server(self._command, log=self.log, keep_open=lock.fileno(), env=environment)
        until = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if not self._server.is_running or time.monotonic() > until:
                raise RuntimeError(f"the KV-cache manager did not start:\n{self.log.read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """As a machine's kernel would; harmless if it has ended."""
        if self._server is not None and self._server.is_running:
            self._signal(signal.SIGKILL)
            self._server.stop()

    def pause(self) -> None:
        """Have it stand still, with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def ask(self, call: str, token: str = ADMIN, **fields: Any) -> dict[str, Any]:
        """Ask it over HTTP.

        Raises:
            urllib.error.HTTPError: it was not done.
        """
        request = urllib.request.Request(
            f"{self.url}/v1/{call}",
            data=json.dumps(fields).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30, context=self._tls) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def share(self, *groups: Mapping[str, Any], **options: Any) -> None:
        """Register the folder for blocks as the storage ``files``, with more options if any, and these groups."""
        storage = {"name": "files", "type": "FileSystem", "options": {"root": str(self.storage), **options}}
        self.ask("RegisterStorage", storage=storage)
        for group in groups:
            self.ask("PutInstanceGroup", group={"storages": ["files"], **group})

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=1, context=self._tls):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def _signal(self, number: int) -> None:
        if self._server is None:
            raise RuntimeError("it was not started")
        holder = self._server.pid
        children = Path(f"/proc/{holder}/task/{holder}/children").read_text().split()
        for child in children:
            os.kill(int(child), number)
