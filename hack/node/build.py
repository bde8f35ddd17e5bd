"""The parts of a node: programs that are built from Go modules, and Debian's packages."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.binaries import Binaries, find_binaries
from hack.controlplane.build import GoProgram, kubernetes_program
from hack.controlplane.cluster import ClusterError
from hack.debian import packages
from hack.search_path import find_program

_HERE = Path(__file__).parent

NODE = kubernetes_program(
    "node",
    _HERE / "go",
    ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"),
    "5 to 10 minutes, beside a control plane that was built before",
)
DNS = GoProgram("coredns", _HERE / "coredns", ("coredns",), "github.com/coredns/coredns", "2 to 3 minutes")

CNI_PLUGINS = Path("/usr/lib/cni")

_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
    "nft": "nftables",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "busybox": "busybox-static",
}
"""Debian's packages, by a program that each of them has."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The node's programs, apart from Debian's, which its daemons find on their PATH."""

    control_plane: Binaries
    kubernetes: Path
    """The folder with kubelet and the others."""
    coredns: Path


def find_programs() -> Programs:
    """Build and install missing programs.

    Raises:
        CommandFailed: a build or an installation failed.
        ClusterError: there is neither a package nor a program of that name on this machine.
    """
    for program, package in _PACKAGES.items():
        if find_program(program) is None:
            _install(program, package)
    return Programs(find_binaries(), NODE.folder(), DNS.folder() / "coredns")


def _install(program: str, package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"{program} is not there; install it (Debian's package {package})")
    packages.install(package)
