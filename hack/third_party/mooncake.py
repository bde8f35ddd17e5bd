"""A pool of Mooncake's store on this machine: a master, and one node that provides memory.

The node listens on all addresses, whatever its options say, so it belongs into its own network namespace.
"""

import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from hack.controlplane.cache import cache_folder, exclusive
from hack.debian import packages
from hack.demo.console import wait_until
from hack.locked import mooncake

_LIBRARIES = ("libibverbs1", "libnl-3-200", "libnl-route-3-200")
_MIB = 2**20


def variables() -> dict[str, str]:
    """Returns the environment of a process that uses Mooncake's client, with the path of its libraries.

    Raises:
        CommandFailed: they can't be got.
        FileNotFoundError: this machine has no apt.
    """
    folder = cache_folder() / "debian" / f"{packages.distribution()}-{_LIBRARIES[0]}"
    folder.parent.mkdir(exist_ok=True)
    with exclusive(folder.with_name(f"{folder.name}.lock"), name=packages.NAME):
        if not folder.exists():
            packages.unpack(_LIBRARIES, folder)
    libraries = (*folder.glob("usr/lib/*-linux-gnu"), *folder.glob("lib/*-linux-gnu"))
    return {
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(mooncake())))),
        "MC_LOG_LEVEL": "ERROR",
    }


class MooncakePool:
    """Both processes can be killed and started again.

    Args:
        folder: for logs.
        mib: memory of the node.
    """

    def __init__(self, folder: Path, mib: int = 64) -> None:
        self._folder = folder
        self._mib = mib
        self._programs = mooncake() / "mooncake"
        self._master_process: subprocess.Popen[bytes] | None = None
        self._node_process: subprocess.Popen[bytes] | None = None
        self.master = "127.0.0.1:50051"
        self.http = "http://127.0.0.1:50052"

    def start_master(self) -> None:
        address, port = self.master.split(":")
        flags = {
            "rpc_address": address,
            "rpc_port": port,
            "metrics_host": address,
            "metrics_port": "50052",
            "enable_metric_reporting": "false",
            "client_ttl": "2",
        }
        self._master_process = self._start("mooncake_master", flags)
        wait_until(lambda: bool(self._summary()), lambda: "Mooncake's master to answer", timeout=60, poll=0.05)

    def start_node(self) -> None:
        flags = {
            "host": "127.0.0.1",
            "port": "50053",
            "master_server_address": self.master,
            "metadata_server": "P2PHANDSHAKE",
            "global_segment_size": f"{self._mib} MB",
            "local_buffer_size": "16 MB",
            "protocol": "tcp",
        }
        self._node_process = self._start("mooncake_client", flags)
        self.await_memory(self._mib)

    def await_memory(self, mib: int) -> None:
        """Wait until the pool has ``mib`` MiB."""
        wanted = f"Mem Storage: {'0 B / 0 B' if not mib else '0 B / ' + f'{mib:.2f} MB'}"
        wait_until(lambda: wanted in self._summary(), lambda: f"an empty pool of {mib} MiB", timeout=60, poll=0.05)

    def kill_master(self) -> None:
        _kill(self._master_process)

    def pause_master(self) -> None:
        """Have it stand still, with its connections open."""
        assert self._master_process is not None
        self._master_process.send_signal(signal.SIGSTOP)

    def resume_master(self) -> None:
        assert self._master_process is not None
        self._master_process.send_signal(signal.SIGCONT)

    def kill_node(self) -> None:
        _kill(self._node_process)

    def stop(self) -> None:
        self.kill_node()
        self.kill_master()

    def _summary(self) -> str:
        try:
            with urllib.request.urlopen(f"{self.http}/metrics/summary", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def _start(self, program: str, flags: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [str(self._programs / program), *(f"--{name}={value}" for name, value in flags.items())]
        with (self._folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.send_signal(signal.SIGKILL)
        process.wait()
