"""A KV-cache manager as a process of its own, which can be killed, paused and started again."""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hack.harness.killable import KillableServer
from hack.harness.manager_access import ManagerAccess
from hack.ports import free_ports

ADMIN: Final = "administrator"
"""The token that may register storages and groups if no API server reviews tokens."""


class CacheManagerProcess(KillableServer):
    """A manager on loopback with files of its own; it identifies its clients by tokens.

    Args:
        folder: for its index, its tokens, its log, and ``storage``, a folder for blocks.
        pools: ``NAMESPACE/POOL`` by the token of its engines, if no API server reviews tokens.
        index: where the index is; None: a file in ``folder``.
        arguments: further command-line arguments.
        tls: for https clients to verify; None: it serves without TLS.
        environment: further variables, such as those for its access to S3.
        access: has an API server review tokens; None: it accepts the tokens of ``pools``, and ``ADMIN``.
    """

    def __init__(
        self,
        folder: Path,
        pools: Mapping[str, str],
        index: str | None = None,
        arguments: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        environment: Mapping[str, str] | None = None,
        access: ManagerAccess | None = None,
    ) -> None:
        self.storage = folder / "storage"
        self.storage.mkdir(parents=True)
        self.events = folder / "events.jsonl"
        self.port, self.grpc_port = free_ports(2)
        self._tls = tls
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        if access is not None:
            self._administrator, who = access.token_file.read_text(), access.flags
        else:
            tokens = folder / "tokens.json"
            tokens.write_text(json.dumps({ADMIN: {"admin": True}} | {token: {"pool": pools[token]} for token in pools}))
            self._administrator, who = ADMIN, ["--tokens", str(tokens)]
        command = [
            *(sys.executable, "-m", "tenantzone_manager", *who),
            *("--index", index or str(folder / "index.db"), "--events", str(self.events)),
            *("--listen", f"127.0.0.1:{self.port}", "--grpc", f"127.0.0.1:{self.grpc_port}", *arguments),
        ]
        variables = {"PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
        super().__init__("manager", folder, command, self._answers, variables)

    def ask(self, call: str, token: str = "", **fields: Any) -> dict[str, Any]:
        """Ask it over HTTP, as its administrator if no token is shown.

        Raises:
            urllib.error.HTTPError: it was not done.
        """
        request = urllib.request.Request(
            f"{self.url}/v1/{call}",
            data=json.dumps(fields).encode(),
            headers={"Authorization": f"Bearer {token or self._administrator}", "Content-Type": "application/json"},
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

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=1, context=self._tls):
                return True
        except (OSError, urllib.error.URLError):
            return False
