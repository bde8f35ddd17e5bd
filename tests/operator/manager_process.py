"""A real KV-cache manager as a process that identifies callers by the API server's TokenReview, as in the manifests."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hack.controlplane import Cluster
from hack.harness.manager_access import ManagerAccess
from hack.ports import free_ports


class ManagerRefusal(Exception):
    """The manager's refusal of a call."""


class ManagerProcess:
    """One manager over a file, with the rights of its service account.

    Args:
        cluster: a cluster with the manifests' rights.
        folder: a folder for all of its files.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.port, self._grpc = free_ports(2)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._access = ManagerAccess(cluster, folder)
        self.token_file = self._access.token_file
        self._command = [
            *(sys.executable, "-m", "tenantzone_manager", "--index", str(folder / "index.db")),
            *("--listen", f"127.0.0.1:{self.port}", "--grpc", f"127.0.0.1:{self._grpc}"),
            *self._access.flags,
            *("--credentials", str(folder), "--lease", "0.2"),
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self._folder / "manager.log").open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def admit(self, accounts: Mapping[str, Any]) -> None:
        """Makes the manager know the service accounts, too, after a restart."""
        self._access.admit(accounts)
        self.kill()
        self.start()

    def ask(self, call: str, token: str = "", /, **fields: Any) -> dict[str, Any]:
        """Makes a call, as the operator if no token is given.

        Raises:
            ManagerRefusal: the call was refused.
            OSError: there is no answer.
        """
        request = urllib.request.Request(f"{self.url}/v1/{call}", json.dumps(fields).encode())
        request.add_header("Authorization", f"Bearer {token or self.token_file.read_text()}")
        try:
            with self._opener.open(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ManagerRefusal(json.load(error)["error"]["message"]) from error
