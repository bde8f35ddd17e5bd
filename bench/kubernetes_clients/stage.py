"""What each case needs: a client in a process of its own, a kubeconfig, certificates, a plugin."""

import asyncio
import base64
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from bench.kubernetes_clients.server import ApiServer, Visit, serving
from hack.controlplane.credentials import Authority

_ROOT = Path(__file__).parents[2]
_ANSWER_SECONDS = 60.0
_PLUGIN = """#!{python}
import os, pathlib, sys
folder = pathlib.Path(__file__).parent
if "KUBERNETES_EXEC_INFO" not in os.environ:
    sys.exit("KUBERNETES_EXEC_INFO is not set")
(folder / "asked.json").write_text(os.environ["KUBERNETES_EXEC_INFO"])
print((folder / "credential.json").read_text())
"""
PLUGIN_VERSION = "client.authentication.k8s.io/v1"
USER = "alice"
OTHER_NAME = "kubernetes.example"
"""The name in each server's certificate. Only the proxy resolves it."""
OTHER_ADDRESS = "127.0.0.2"
"""Of loopback, too; no certificate holds it."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Whom everybody believes: made once for all cases."""

    authority: Authority
    server: tuple[Path, Path]
    client: tuple[Path, Path]


class Client:
    """A process that reads an object on request."""

    def __init__(self, process: asyncio.subprocess.Process, greeting: dict[str, Any]) -> None:
        self._process = process
        self.greeting = greeting

    async def error(self) -> str | None:
        """Read the object once: what went wrong, or None."""
        found: str | None = (await self.send("get")).get("error")
        return found

    async def send(self, order: str) -> dict[str, Any]:
        """Sends one line. Returns the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n".encode())
        await self._process.stdin.drain()
        return await _line(self._process)


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """The next line that it says of its own: what libraries print is passed over."""
    assert process.stdout is not None
    async with asyncio.timeout(_ANSWER_SECONDS):
        while line := await process.stdout.readline():
            if line.startswith(b"{"):
                found: dict[str, Any] = json.loads(line)
                return found
    return {"error": f"the client ended with {await process.wait()}"}


@dataclass(slots=True)
class Stage:
    """One client's place in one case.

    Args:
        library: the client's name.
        python: the interpreter that has it.
        folder: for this case alone.
    """

    library: str
    python: str
    folder: Path
    certificates: Certificates
    files: list[Path] = field(default_factory=list)
    """Kubeconfigs, as the variable KUBECONFIG will have them."""

    def server(
        self, accepts: Callable[[Visit], bool], *, tls: bool = True, host: str = "127.0.0.1"
    ) -> AbstractAsyncContextManager[ApiServer]:
        """An API server that answers those whom it accepts."""
        certificate = self.certificates.server if tls else None
        return serving(accepts, host, self.certificates.authority, certificate)

    def write(
        self,
        server: str,
        user: Mapping[str, Any],
        cluster: Mapping[str, object] = MappingProxyType({}),
        name: str = "config",
    ) -> None:
        """A kubeconfig, and one more in the variable; a cluster's field is left out where it is None."""
        authority = str(self.certificates.authority.certificate)
        fields = {"server": server, "certificate-authority": authority, **cluster}
        content = {
            "clusters": [{"name": "c", "cluster": {key: value for key, value in fields.items() if value is not None}}],
            "users": [{"name": "u", "user": dict(user)}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.write_parts(name, content)

    def write_parts(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes a kubeconfig with these parts, and adds it to the variable."""
        path = self.folder / name
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **content}))
        self.files.append(path)

    def plugin(self, **status: object) -> dict[str, Any]:
        """A credential plugin that gives this, as a user's section."""
        path = self.folder / "plugin"
        path.write_text(_PLUGIN.format(python=sys.executable))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.plugin_gives(**status)
        return {"exec": {"apiVersion": PLUGIN_VERSION, "command": str(path), "interactiveMode": "Never"}}

    def plugin_gives(self, **status: object) -> None:
        """Another credential from now on."""
        kind = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential"}
        (self.folder / "credential.json").write_text(json.dumps({**kind, "status": status}))

    @property
    def plugin_was_asked(self) -> dict[str, Any]:
        """The cluster and version that the plugin was called with; empty if it was not called."""
        path = self.folder / "asked.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    @asynccontextmanager
    async def client(self, *, with_kopf: bool = False, **variables: str) -> AsyncIterator[Client]:
        """The client, in another folder than the kubeconfig's."""
        quiet = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        process = await asyncio.create_subprocess_exec(
            *(self.python, "-m", "bench.kubernetes_clients.child", self.library),
            *(["--with-kopf"] if with_kopf else []),
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={
                **quiet,
                "KUBECONFIG": os.pathsep.join(map(str, self.files)),
                "PYTHONPATH": os.pathsep.join(str(_ROOT / part) for part in ("", "operator", "runtime")),
                **variables,
            },
        )
        try:
            yield Client(process, await _line(process))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def encoded(path: Path) -> str:
    """A file as a kubeconfig's ``-data`` has it."""
    return base64.b64encode(path.read_bytes()).decode()
