"""``python -m hack.controlplane``: the control plane by hand."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from hack.controlplane import detached
from hack.controlplane.binaries import find_binaries
from hack.controlplane.cluster import ClusterError
from hack.controlplane.plane import ControlPlane
from hack.controlplane.program import run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.controlplane", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="find or build etcd, kube-apiserver and kubectl")
    build.set_defaults(do=_build)
    for name, do, text in (
        ("start", _start, "start a control plane that keeps running"),
        ("stop", _stop, "stop it; its objects stay in the folder"),
        ("run", _run, "run one until interrupted"),
        ("kubectl", _kubectl, "run kubectl against it"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--folder", type=Path, required=True, help="where its state lies")
        command.set_defaults(do=do)
        if do is _kubectl:
            command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    return parser


def _build(_: argparse.Namespace) -> int:
    binaries = find_binaries()
    print(binaries.etcd, binaries.kube_apiserver, binaries.kubectl, sep="\n")
    return 0


def _start(arguments: argparse.Namespace) -> int:
    detached.start(arguments.folder)
    kubeconfig = (arguments.folder / "admin.kubeconfig").absolute()
    print(f"export KUBECONFIG={kubeconfig}", f"alias kubectl={find_binaries().kubectl}", sep="\n")
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    was_running = detached.stop(arguments.folder)
    print("stopped" if was_running else f"no control plane runs in {arguments.folder}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    detached.keep(arguments.folder, ControlPlane(arguments.folder))
    return 0


def _kubectl(arguments: argparse.Namespace) -> int:
    kubeconfig = arguments.folder / "admin.kubeconfig"
    if detached.keeper_of(arguments.folder) is None:
        raise ClusterError(
            f"no control plane runs in {arguments.folder}; start one with: python -m hack.controlplane start"
        )
    command = [find_binaries().kubectl, *arguments.arguments]
    return subprocess.run(command, env=os.environ | {"KUBECONFIG": str(kubeconfig)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(run(_parser()))
