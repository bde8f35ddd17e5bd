"""Connects to the cluster that kubectl would use, through kubectl itself.

kubectl is always installed where a plugin runs, and supports every way to find a cluster and to log in: contexts,
credential plugins, proxies, impersonation. So the plugin runs ``kubectl proxy`` until the plugin exits. The proxy
listens on a Unix socket in a folder that only the user can open, because through a TCP port, all users of the machine
could use this user's rights.
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
    """kubectl can't be run, or kubectl has failed after it printed the error."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The user's kubectl, with the flags that select the cluster.

    Args:
        flags: the kubectl flags that select the cluster and the user.
    """

    flags: Sequence[str] = ()

    @contextmanager
    def connected(self) -> Iterator[Api]:
        """Context manager that runs ``kubectl proxy``; its value is a client of the API server that uses the proxy.

        Raises:
            KubectlError: kubectl can't be run, or the proxy does not start.
        """
        with tempfile.TemporaryDirectory(prefix="tenantzone-") as folder:
            socket = Path(folder) / "api"
            # The last flag is needed if the API server's URL has a path, as some vendors' URLs do.
            command = self._command("proxy", f"--unix-socket={socket}", "--append-server-path")
            with _started(command) as proxy:
                assert proxy.stdout is not None
                if not proxy.stdout.readline():
                    raise KubectlError("kubectl proxy did not start; its error is above")
                yield Api(socket)

    def namespace(self) -> str:
        """Returns the namespace of kubectl's context, or ``default`` if the context has no namespace.

        Raises:
            KubectlError: kubectl can't be run, or the selected context does not exist.
        """
        command = self._command("config", "view", "--minify", "--output=jsonpath={..namespace}")
        try:
            # Hide the errors of this command, because kubectl proxy, which starts at the same time, prints them, too.
            shown = subprocess.run(command, capture_output=True, text=True, check=True)
        except OSError as error:
            raise KubectlError(f"{_PROGRAM}: {error.strerror}") from None
        except subprocess.CalledProcessError:
            raise KubectlError("kubectl config view failed; its error is above") from None
        return shown.stdout.strip() or "default"

    def _command(self, *arguments: str) -> list[str]:
        return [_PROGRAM, *self.flags, *arguments]


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Context manager that runs a command until the block ends.

    The user sees the command's standard error, including prompts of a credential plugin.
    """
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
