"""A node, brought up and down."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hack.controlplane.cluster import Cluster, ClusterError
from hack.controlplane.server import Server
from hack.node import addresses
from hack.node.build import find_programs
from hack.node.images import write_images
from hack.node.possible import NAMESPACES, obstacle
from hack.node.state import State
from hack.progress import say
from hack.search_path import environment

NAME = "node"
_START_SECONDS = 180.0
_END_SECONDS = 20.0
_LOCK = Path("/run/lock/tenantzone-node.lock")
_CGROUPS = Path("/sys/fs/cgroup")
_POD_CGROUPS = ("kubepods", "k8s.io")


@dataclass(frozen=True, slots=True)
class Inside:
    """The way into a node that runs."""

    first_process: int
    """The first process of the node's namespaces; its pid as seen from outside."""

    def enter_network(self, *command: str | Path) -> list[str]:
        """The command line that runs a command in the node's network, with the machine's own files."""
        return ["nsenter", f"--net=/proc/{self.first_process}/ns/net", "--", *map(str, command)]

    def enter(self, *command: str | Path) -> list[str]:
        """Returns the command line that runs a command on the node, as one of its own processes."""
        return ["nsenter", f"--target={self.first_process}", *NAMESPACES, "--", *map(str, command)]


def inside(folder: Path) -> Inside:
    """The way into the node whose state lies in the folder.

    Raises:
        ClusterError: none runs there.
    """
    try:
        return Inside(int(State(folder).first_process.read_text()))
    except FileNotFoundError:
        raise ClusterError(f"no node runs in {folder}; start one with: python -m hack.node up") from None


class Node(Cluster):
    """A Kubernetes of one node. Its state lies in a folder that is gone when it goes down.

    kubectl runs inside the node's network namespace: from outside there is no way to its API server.

    Raises:
        ClusterError: it does not come up; or this is not root, or not Linux.
        CommandFailed: a program could not be built or installed.
    """

    def __init__(self, folder: Path) -> None:
        if why_not := obstacle():
            raise ClusterError(f"{why_not}; name another cluster with KUBECONFIG instead")
        self._programs = find_programs()
        self._state = State(folder.absolute())
        self._server: Server | None = None
        self._inside = Inside(0)
        kubectl = self._programs.control_plane.kubectl
        super().__init__(self._state.kubeconfig, addresses.API_SERVER, kubectl)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Come up, and return when the node is ready for pods."""
        from hack.node.daemons import write_daemons

        began = time.monotonic()
        lock = _only_node()
        try:
            # Of a node whose keeper was killed.
            _remove_cgroups()
            self._state.make()
            write_daemons(self._state, self._programs)
            write_images(self._state.images)
            self._server = Server(
                ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "--propagation=private",
                 sys.executable, "-m", "hack.node.inside", self._state.folder],
                log=self._state.logs / "init.log",
                keep_open=lock,
                env={**environment(), "PYTHONPATH": str(Path(__file__).parents[2])},
            )  # fmt: skip
        finally:
            os.close(lock)
        self._await("the namespaces are there", self._find_first_process)
        self._await("the API server answers", lambda: self._succeeds("get", "--raw=/readyz"))
        self._await("containerd answers", self._imports_images)
        self._await("the node has registered", lambda: self._succeeds("get", f"node/{addresses.NAME}"))
        self._await("pods may be made", lambda: self._succeeds("get", "serviceaccount/default"))
        self.kubectl("wait", "--for=condition=Ready", f"node/{addresses.NAME}", f"--timeout={_START_SECONDS:.0f}s")
        say(NAME, f"ready after {time.monotonic() - began:.1f} s")

    def stop(self) -> None:
        """End everything, and leave nothing behind."""
        if self._server is not None:
            self._server.stop()
            self._server = None
            _remove_cgroups()
        shutil.rmtree(self._state.folder, ignore_errors=True)

    def enter(self, *command: str | Path) -> list[str]:
        """The command line that runs a command in the node's network, with the machine's own files."""
        return self._inside.enter_network(*command)

    @property
    def first_process(self) -> int:
        """The ancestor of everything that runs on the node; its pid as seen from outside."""
        return self._inside.first_process

    def import_image(self, archive: Path) -> None:
        """Give the node an image.

        Raises:
            ClusterError: containerd refuses it, or does not answer.
        """
        command = self._inside.enter("ctr", "--namespace=k8s.io", "images", "import", archive.absolute())
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"ctr images import {archive}: {done.stderr.strip()}")

    def _command(self, *args: str) -> Sequence[str | Path]:
        return self.enter(*super()._command(*args))

    def _find_first_process(self) -> bool:
        """Find the one child of unshare, which is the one child of the lifeline."""
        assert self._server is not None
        found = _only_child(_only_child(self._server.pid))
        if found is None or Path(f"/proc/{found}/comm").read_text().strip() == "unshare":
            return False
        self._inside = Inside(found)
        self._state.first_process.write_text(str(found))
        return True

    def _imports_images(self) -> bool:
        try:
            for archive in sorted(self._state.images.glob("*.tar")):
                self.import_image(archive)
        except ClusterError:
            return False
        return True

    def _succeeds(self, *args: str) -> bool:
        return self.kubectl(*args, check=False).returncode == 0

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        assert self._server is not None
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            if not self._server.is_running:
                raise ClusterError(f"the node ended; {self._server.log_tail()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"not within {_START_SECONDS:.0f} s: {what}; see {self._state.logs}")
            time.sleep(0.1)
        say(NAME, what)


def _only_node() -> int:
    """Lock the machine's one place for a node, since two kubelets would clean up after each other.

    Control groups belong to the machine. The returned file and the node hold the lock.
    """
    descriptor = os.open(_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ClusterError(
            "a node runs on this machine already; end it first, with: python -m hack.node down"
        ) from None
    return descriptor


def _only_child(pid: int | None) -> int | None:
    if pid is None:
        return None
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if len(children) == 1 else None


def _remove_cgroups() -> None:
    """Pods' control groups outlive their processes, which may take a moment to be gone."""
    deadline = time.monotonic() + _END_SECONDS
    while groups := _pod_cgroups():
        for group in groups:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of a node that went down are still there, in {groups[0]}")
        time.sleep(0.05)


def _pod_cgroups() -> list[Path]:
    # Version 2 has one tree, version 1 has one for each controller.
    tops = [_CGROUPS, *_CGROUPS.glob("*/")]
    return [top / name for top in tops for name in _POD_CGROUPS if (top / name).is_dir()]
