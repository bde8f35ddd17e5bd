"""Runs the operator as a process, and measures its memory and writes."""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hack.harness.killable import KillableServer
from hack.ports import free_ports

_NOT_IN_THE_IMAGE = "kubernetes_asyncio"
"""Package to hide from the operator: kopf imports it if it is installed, but the operator's image lacks it."""
_ROOT = Path(__file__).parents[2]


class OperatorProcess(KillableServer):
    """The operator as a child process, which can be started, killed and measured. It ends with this process.

    Its memory includes the official Kubernetes client, which reads the kubeconfig. In a pod the operator does not load
    that client.

    Args:
        kubeconfig: the kubeconfig, which determines the operator's user.
        folder: the folder for the operator's log.
        profile: the file for cProfile's statistics, written when the operator ends; None for no profile.
        flags: additional flags of the operator.
    """

    def __init__(
        self, kubeconfig: Path, folder: Path, profile: Path | None = None, flags: Sequence[str] = ("--no-leader-elect",)
    ) -> None:
        (self.port,) = free_ports(1)
        """Port of the operator's probes."""
        hidden = folder / "hidden"
        hidden.mkdir(exist_ok=True, parents=True)
        (hidden / f"{_NOT_IN_THE_IMAGE}.py").write_text('raise ImportError("not in the operator\'s image")\n')
        path = os.pathsep.join([str(hidden), str(_ROOT / "operator"), str(_ROOT / "runtime")])
        python = [sys.executable, *(["-m", "cProfile", "-o", str(profile)] if profile is not None else [])]
        command = [
            *(*python, "-m", "tenantzone_operator", "--kubeconfig", str(kubeconfig), "--all-namespaces"),
            *("--probe-host", "127.0.0.1", "--probe-port", str(self.port), *flags),
        ]
        super().__init__("operator", folder, command, lambda: bool(self.pids), {"PYTHONPATH": path})

    @property
    def resident_mb(self) -> float:
        """Current resident memory, in MB."""
        return self._status("VmRSS")

    @property
    def peak_mb(self) -> float:
        """Peak resident memory, in MB."""
        return self._status("VmHWM")

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def writes(self) -> int:
        """Returns the number of writes since the operator's start; waits until the operator answers."""
        while True:
            try:
                return int((await asyncio.to_thread(self.health))["writes"])
            except OSError:
                await asyncio.sleep(0.1)

    def health(self) -> dict[str, Any]:
        """Returns the operator's health report from ``/healthz``.

        Raises:
            OSError: the operator does not answer, or is not healthy.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=10) as answer:
            said: dict[str, Any] = json.load(answer)
        return said

    @property
    def _pid(self) -> int:
        (pid,) = self.pids
        return pid

    def _status(self, field: str) -> float:
        for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
        raise ValueError(f"no {field} in the process's status")
