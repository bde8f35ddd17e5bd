"""Connects to the cluster that kubectl would use, through kubectl itself.

A plugin always runs with kubectl, and kubectl knows every way to find a cluster and to log in to it: contexts,
credential plugins, proxies, impersonation. So the plugin runs ``kubectl proxy`` until it ends. The proxy serves on a
Unix socket in a folder of the user: on a port, everybody on the machine could use the user's rights.
"""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenantzone_cli.api import Api

_PROGRAM = "kubectl"


class KubectlError(Exception):
    """The program kubectl can't be run, or has ended after printing its error."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The user's own kubectl, with the flags that name the cluster.

    Args:
        flags: the cluster and the user, as kubectl's flags.
    """

    flags: Sequence[str] = ()

    @contextmanager
    def connected(self) -> Iterator[Api]:
        """Run ``kubectl proxy`` until the block ends; yields the API server as kubectl reaches it.

        Raises:
            KubectlError: kubectl can't be run.
        """
        with tempfile.TemporaryDirectory(prefix="tenantzone-") as folder:
            socket = Path(folder) / "api"
            # Servers behind a path, as some vendors have them, need the last flag.
            command = self._command("proxy", f"--unix-socket={socket}", "--append-server-path")
            with _started(command) as proxy:
                assert proxy.stdout is not None
                if not proxy.stdout.readline():
                    raise KubectlError("kubectl proxy did not start")
                yield Api(socket)

    def namespace(self) -> str:
        """Returns the namespace of kubectl's context; ``default`` if it has none.

        Raises:
            KubectlError: kubectl can't be run, or there is no such context.
        """
        command = self._command("config", "view", "--minify", "--output=jsonpath={..namespace}")
        try:
            # Hide its errors: the proxy that starts at the same time prints them, too.
            shown = subprocess.run(command, capture_output=True, text=True, check=True)
        except OSError as error:
            raise KubectlError(f"{_PROGRAM}: {error.strerror}") from None
        except subprocess.CalledProcessError:
            raise KubectlError("kubectl config view failed") from None
        return shown.stdout.strip() or "default"

    def _command(self, *arguments: str) -> list[str]:
        return [_PROGRAM, *self.flags, *arguments]


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends; its standard error, and a credential plugin's questions, go to the user."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise KubectlError(f"{command[0]}: {error.strerror}") from None
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
