"""A Kubernetes cluster as its administrator sees it: a kubeconfig and kubectl."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from hack.controlplane.binaries import find_kubectl


class ClusterError(Exception):
    """The cluster can't be used; the message says why."""


class Cluster:
    """A cluster that is used through one kubeconfig, whatever the environment says."""

    def __init__(self, kubeconfig: Path, server: str, kubectl: Path) -> None:
        self.kubeconfig = kubeconfig
        self.server = server
        self.kubectl_program = kubectl
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig)}

    @classmethod
    def named(cls, kubeconfig: str | Path) -> "Cluster":
        """Returns the cluster of a kubeconfig that the user named.

        Raises:
            ClusterError: the file does not exist, or no server answers.
        """
        path = Path(kubeconfig).expanduser().absolute()
        if not path.is_file():
            raise ClusterError(f"kubeconfig {path}: no such file (name a single one)")
        cluster = cls(path, "", find_kubectl())
        answer = cluster.kubectl("get", "--raw=/readyz", "--request-timeout=10s", check=False)
        if answer.returncode != 0:
            raise ClusterError(f"kubeconfig {path}: {answer.stderr.strip()}")
        shown = cluster.kubectl("config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}")
        cluster.server = shown.stdout
        return cluster

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator.

        Args:
            args: kubectl's arguments.
            stdin: its standard input (``-f -``).
            check: raise if it fails.

        Raises:
            ClusterError: kubectl failed; the message is kubectl's own.
        """
        done = subprocess.run(
            self._command(*args),
            input=stdin if stdin is not None else "",
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done

    def popen(self, *args: str, stdout: IO[str] | int, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Start kubectl as the administrator, and let it write to a file, or to ``subprocess.PIPE``."""
        return subprocess.Popen(self._command(*args), env=self._environment, stdin=stdin, stdout=stdout, text=True)

    def _command(self, *args: str) -> Sequence[str | Path]:
        return [self.kubectl_program, "--kubeconfig", self.kubeconfig, *args]

    def create_namespace(self, name: str) -> None:
        """Make a namespace.

        Raises:
            ClusterError: there is one of this name, or it is not a name.
        """
        self.kubectl("create", "namespace", name)

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace and everything in it, without waiting for the end of the deletion."""
        self.kubectl("delete", "namespace", name, "--wait=false")
