"""A Redis for the manager's index, if this machine has one or can get one."""

from pathlib import Path

from hack.debian import DebianError, ensure
from hack.demo.processes import Processes
from hack.ports import free_ports


def start_redis(processes: Processes, folder: Path) -> str | None:
    """Start a Redis, and return its URL; None: there is none."""
    try:
        program = ensure("redis-server")
    except DebianError:
        return None
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    arguments = ("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", "", "--appendonly", "yes")
    processes.start("redis", [program, *arguments])
    return f"redis://127.0.0.1:{port}/0"
