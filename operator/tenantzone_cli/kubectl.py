"""Connects to the cluster that kubectl would use, through kubectl itself.

kubectl is always installed where a plugin runs, and it supports every way to find a cluster and to log in to it:
contexts, credential plugins, proxies, impersonation. So the plugin keeps ``kubectl proxy`` running until it exits. The
proxy listens on a Unix socket in a folder that only the user can open, because everybody on the machine could use the
user's rights through a TCP port.
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
    """kubectl can't be run, or it has exited after printing its error."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The user's kubectl, with the flags that select the cluster.

    Args:
        flags: the kubectl flags that select the cluster and the user.
    """

    flags: Sequence[str] = ()

    @contextmanager
    def connected(self) -> Iterator[Api]:
        """Run ``kubectl proxy`` until the block ends; yields a client of the API server behind the proxy.

        Raises:
            KubectlError: kubectl can't be run.
        """
        with tempfile.TemporaryDirectory(prefix="tenantzone-") as folder:
            socket = Path(folder) / "api"
            # API servers whose URL has a path, as at some vendors, need the last flag.
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
            # Hide the errors of this command, because the proxy that starts at the same time prints the same ones.
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
    """Run a command until the block ends; the user sees its standard error, and the prompts of a credential plugin."""
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
