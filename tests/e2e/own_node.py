"""Faults to inject into our own node."""

import subprocess
from dataclasses import dataclass

from hack.node.node import Inside


@dataclass(frozen=True, slots=True)
class OwnNode:
    """The node that runs everything, seen from its machine."""

    inside: Inside

    def kill(self, daemon: str) -> None:
        """Kills a daemon; the node starts it again."""
        self._run("pkill", "--signal=KILL", "--exact", daemon)

    def kill_largest_process(self, container: str) -> str:
        """Kills what the kernel kills when memory is short: the process of a container that uses the most of it.

        Args:
            container: its id, in kubelet's notation.

        Returns:
            the process' name.
        """
        listed = self._run("ctr", "--namespace=k8s.io", "tasks", "ps", container.removeprefix("containerd://"))
        numbers = [line.split()[0] for line in listed.splitlines()[1:]]
        by_size = self._run("ps", "--no-headers", "--sort=-rss", "--format=pid,comm", *numbers)
        number, name = by_size.splitlines()[0].split(maxsplit=1)
        self._run("kill", "--signal=KILL", number)
        return name

    def _run(self, *command: str) -> str:
        return subprocess.run(self.inside.enter(*command), check=True, capture_output=True, text=True).stdout
