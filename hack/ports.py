"""Ports and loopback addresses for servers that are about to start, each given to one process only.

The process that takes a port keeps a socket bound to it that does not listen. Servers bind with ``SO_REUSEADDR``, as
nearly all do, and so can listen on the port any number of times; a search for a free port binds without it, and skips
the port. So two processes that start servers at the same time never get the same port, however long a server takes to
listen.
"""

import random
import socket

_LAST_OF_LOOPBACK = range(2, 255)
_BELOW_OUTGOING = range(20000, 32768)

_taken: list[socket.socket] = []
"""Bound for as long as this process lives."""


def free_ports(count: int) -> list[int]:
    """Returns loopback ports that are unused and were given to no other process.

    They are below the range of ports for outgoing connections, so a server can be stopped and started again on the same
    port.

    Raises:
        OSError: there are too few.
    """
    ports: list[int] = []
    for port in random.sample(_BELOW_OUTGOING, k=len(_BELOW_OUTGOING)):
        if _take("127.0.0.1", port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"found no free port on 127.0.0.1 between {_BELOW_OUTGOING[0]} and {_BELOW_OUTGOING[-1]}")


def free_address(*ports: int) -> str:
    """Returns a loopback address with these ports free: like pods, engines differ by address and not by port.

    Raises:
        OSError: there is none.
    """
    for last in random.sample(_LAST_OF_LOOPBACK, k=len(_LAST_OF_LOOPBACK)):
        ip = f"127.0.0.{last}"
        if _take(ip, *ports):
            return ip
    raise OSError(f"no loopback address has the ports {ports} free; end what listens on 0.0.0.0 there")


def _take(ip: str, *ports: int) -> bool:
    """Bind them all, or none."""
    claims = []
    for port in ports:
        claim = socket.socket()
        claims.append(claim)
        try:
            claim.bind((ip, port))
        except OSError:
            for taken in claims:
                taken.close()
            return False
    for claim in claims:
        claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _taken.extend(claims)
    return True


def is_served(port: int) -> bool:
    """Returns whether a server accepts connections on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False
