"""A network of pods, each in its own network namespace, behind one that routes between them; needs root and Linux.

Forwarded packets pass the router's queue, from which a program takes the first packet of each connection and decides.
Everything is gone with its processes.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hack.debian import packages
from hack.search_path import find_program

QUEUE = 100
_GATEWAY = "169.254.1.1"
"""The router's address for each of them."""
_LISTENING = """
import socket, sys
held = [socket.create_server(("", int(port))) for port in sys.argv[1:]]
print("listening", flush=True)
sys.stdin.read()
"""
_REACHING = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reach(target):
    try:
        socket.create_connection(target, float(sys.argv[2])).close()
    except OSError:
        return False
    return True
targets = [tuple(target) for target in json.loads(sys.argv[1])]
with ThreadPoolExecutor(len(targets)) as at_once:
    print(json.dumps(list(at_once.map(reach, targets))))
"""

Target = tuple[str, int]
"""An address and a TCP port."""


class Network:
    """A network of pods.

    Args:
        router: the id of the process in whose namespace packets are forwarded.
        pods: the ids of the pods' processes, by address.
    """

    def __init__(self, router: int, pods: Mapping[str, int]) -> None:
        self._router = router
        self._pods = pods

    def in_router(self, *command: str | Path) -> list[str]:
        """The command line that runs a command where packets are forwarded."""
        return [*_in(self._router), *map(str, command)]

    def reached(self, wanted: Mapping[str, Sequence[Target]], seconds: float) -> dict[tuple[str, Target], bool]:
        """Whether each target accepts a connection from each source within `seconds` seconds, all at once.

        Args:
            wanted: targets, by the source's address.
        """
        asking = {
            source: subprocess.Popen(
                [*_in(self._pods[source]), sys.executable, "-c", _REACHING, json.dumps(targets), str(seconds)],
                stdout=subprocess.PIPE,
            )
            for source, targets in wanted.items()
        }
        found: dict[tuple[str, Target], bool] = {}
        for source, process in asking.items():
            reported, _ = process.communicate()
            found |= {
                (source, target): is_it for target, is_it in zip(wanted[source], json.loads(reported), strict=True)
            }
        return found


@contextmanager
def network_of(listening: Mapping[str, Iterable[int]]) -> Iterator[Network]:
    """A network of pods with these addresses, each listening at its ports."""
    for program, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if find_program(program) is None:
            packages.install(package)
    with ExitStack() as running:
        router = running.enter_context(_namespace("cat"))
        pods = {}
        for number, (address, ports) in enumerate(listening.items()):
            pod = running.enter_context(_namespace(sys.executable, "-c", _LISTENING, *map(str, ports)))
            _connect(router, pod, address, f"pod{number}")
            pods[address] = pod
        _run(*_in(router), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        new = ("-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", str(QUEUE))
        _run(*_in(router), "iptables", "-t", "mangle", "-A", "FORWARD", *new)
        yield Network(router, pods)


@contextmanager
def _namespace(*command: str) -> Iterator[int]:
    """A process in its own network namespace that ends with its standard input."""
    with subprocess.Popen(["unshare", "--net", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if command[0] != "cat":
            assert process.stdout.readline() == b"listening\n"
        else:
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.stdin.close()


def _connect(router: int, pod: int, address: str, name: str) -> None:
    """Gives a pod its address, on one end of a pair whose other end the router has."""
    _run("ip", "link", "add", name, "netns", str(router), "type", "veth", "peer", "name", "eth0", "netns", str(pod))
    for at, commands in (
        (
            router,
            (
                f"address add {_GATEWAY}/32 dev {name}",
                f"link set {name} up",
                f"route add {address}/32 dev {name}",
            ),
        ),
        (
            pod,
            (
                "link set lo up",
                f"address add {address}/32 dev eth0",
                "link set eth0 up",
                f"route add {_GATEWAY} dev eth0 scope link",
                f"route add default via {_GATEWAY}",
            ),
        ),
    ):
        for command in commands:
            _run(*_in(at), "ip", *command.split())


def _in(process: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{process}/ns/net", "--"]


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
