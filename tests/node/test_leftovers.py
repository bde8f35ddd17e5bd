"""A node leaves nothing on the machine."""

import json
import subprocess
from pathlib import Path

import psutil
import pytest

from hack.controlplane import ClusterError
from hack.node import Node
from hack.node.images import SHELL_IMAGE
from hack.search_path import environment
from tests.node.pods import apply, needs_a_node, pod
from tests.waiting import await_that

pytestmark = [needs_a_node, pytest.mark.usefixtures("users_path")]


def interfaces() -> set[str]:
    shown = subprocess.run(["ip", "-json", "link"], env=environment(), capture_output=True, check=True).stdout
    return {link["ifname"] for link in json.loads(shown)}


def processes_of(node: Node) -> list[psutil.Process]:
    return psutil.Process(node.first_process).children(recursive=True)


def arguments(process: psutil.Process) -> list[str]:
    """The arguments of a process; none if it has ended since it was found."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def test_nothing_is_left_of_a_node_that_went_down(tmp_path):
    links, mounts = interfaces(), Path("/proc/self/mounts").read_text()
    with Node(tmp_path / "state") as node:
        apply(node, pod("sleeper", SHELL_IMAGE, "sleep", "3600"))
        node.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "--timeout=60s")
        # A container counts as started before its first process has become the pod's command.
        await_that(lambda: any("sleep" in arguments(each) for each in processes_of(node)), "the pod's process is there")
        processes = processes_of(node)
        with pytest.raises(ClusterError, match="a node runs on this machine already"), Node(tmp_path / "other"):
            pass
    await_that(lambda: not any(each.is_running() for each in processes), "all its processes have ended")
    assert interfaces() == links
    assert Path("/proc/self/mounts").read_text() == mounts
    assert not [*tmp_path.iterdir()]
    assert not [*Path("/sys/fs/cgroup").glob("kubepods"), *Path("/sys/fs/cgroup").glob("*/kubepods")]
