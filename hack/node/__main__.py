"""``python -m hack.node``: the one-node Kubernetes by hand."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from hack.controlplane import detached
from hack.controlplane.program import run
from hack.node.build import find_programs
from hack.node.node import Node, inside
from hack.node.possible import obstacle
from hack.progress import say

_FOLDER = Path(__file__).parent.parent.parent / ".node"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.node", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, do, text in (
        ("check", _check, "say why no node can run on this machine, if none can"),
        ("build", _build, "build and install what it is made of"),
        ("up", _up, "start a node that keeps running"),
        ("down", _down, "end it; nothing of it is left"),
        ("run", _run, "start a node, run a command in its network (or wait to be interrupted), end the node"),
        ("enter", _enter, "run a command in the network of the node that is up"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--folder", type=Path, default=_FOLDER, help="where its state lies (default: %(default)s)")
        command.set_defaults(do=do)
        if do in (_run, _enter):
            command.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    return parser


def _check(_: argparse.Namespace) -> int:
    if why_not := obstacle():
        print(why_not)
        return 1
    return 0


def _build(_: argparse.Namespace) -> int:
    find_programs()
    return 0


def _up(arguments: argparse.Namespace) -> int:
    detached.start(arguments.folder, module="hack.node")
    print(f"a shell in its network: {sys.executable} -m hack.node enter --folder {arguments.folder} bash")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    was_running = detached.stop(arguments.folder)
    print("stopped" if was_running else f"no node runs in {arguments.folder}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    if not arguments.command:
        detached.keep(arguments.folder, Node(arguments.folder))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Node(arguments.folder) as node:
        return _in_network(node.enter(*arguments.command), arguments.folder)


def _enter(arguments: argparse.Namespace) -> int:
    return _in_network(inside(arguments.folder).enter_network(*arguments.command), arguments.folder)


def _in_network(command: list[str], folder: Path) -> int:
    kubeconfig = str((folder / "admin.kubeconfig").absolute())
    say("node", f"KUBECONFIG={kubeconfig} {' '.join(command)}")
    return subprocess.run(command, env={**os.environ, "KUBECONFIG": kubeconfig}, check=False).returncode


if __name__ == "__main__":
    sys.exit(run(_parser()))
