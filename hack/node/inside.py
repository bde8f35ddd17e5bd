"""``python -m hack.node.inside FOLDER``: the first process of the node's namespaces. When it ends, all in them does.

It arranges mounts and network, then keeps the daemons running as a machine's init would: one that dies is started
again.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from hack.node import addresses
from hack.node.state import State

_RESTART_SECONDS = 0.5

_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""The values that kubelet requires. They are the whole machine's: kubelet sees these, and its writes have no effect."""


def main(folder: Path) -> None:
    """Be the first process of a node: arrange mounts and network, and keep the daemons running."""
    signal.signal(signal.SIGTERM, _end)
    state = State(folder)
    socket.sethostname(addresses.NAME)
    _arrange_mounts(state)
    _arrange_network()
    _Daemons(state).keep_running()


def _end(signal_number: int, frame: FrameType | None) -> None:
    # The kernel ends all others with the first process.
    os._exit(0)


def _arrange_mounts(state: State) -> None:
    """Private to the mount namespace, however they propagate inside: kubelet wants them shared with pods."""
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    Path("/run/lock").mkdir()
    for source, target in (
        (state.kubelet, "/var/lib/kubelet"),
        (state.containerd, "/var/lib/containerd"),
        (state.pods, "/var/log/pods"),
        (state.cni, "/etc/cni/net.d"),
    ):
        Path(target).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", source, target)
    Path("/var/log/containers").mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "tmpfs", "/var/log/containers")
    for name, value in _SYSCTLS.items():
        decoy = Path("/run") / name.replace("/", "_")
        decoy.write_text(f"{value}\n")
        _run("mount", "--bind", decoy, f"/proc/sys/{name}")


def _arrange_network() -> None:
    """Set up the node's address on a veth pair whose other end is unused: not every kernel has dummy devices."""
    for command in (
        "link set lo up",
        "link add node0 type veth peer name node1",
        "link set node1 up",
        f"address add {addresses.NODE}/24 dev node0",
        "link set node0 up",
        f"route add default via {addresses.GATEWAY} dev node0 onlink",
    ):
        _run("ip", *command.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


class _Daemons:
    """The node's daemons, each with its log.

    Args:
        state: which ones, and where the logs go.
    """

    def __init__(self, state: State) -> None:
        self._logs = state.logs
        self._commands: dict[str, list[str]] = json.loads(state.daemons.read_text())
        self._running: dict[int, str] = {}

    def keep_running(self) -> None:
        """Start all, and start again whichever ends; never returns."""
        for name in self._commands:
            self._start(name)
        while True:
            # The first process inherits orphans, too: containers' shims leave some.
            pid, status = os.wait()
            if name := self._running.pop(pid, ""):
                print(f"{name} ended with {os.waitstatus_to_exitcode(status)}; starting it again", flush=True)
                time.sleep(_RESTART_SECONDS)
                self._start(name)

    def _start(self, name: str) -> None:
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        self._running[process.pid] = name
        # It is waited for above.
        process.returncode = 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
