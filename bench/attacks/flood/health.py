"""The client that requests ``/health`` during a flood, over one connection and with no other work."""

import http.client
import time
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

_PAUSE_SECONDS = 0.1
_TIMEOUT_SECONDS = 120.0


def ask_until_stopped(url: str, parent: Connection) -> list[float]:
    """Request a server's health repeatedly, until a message arrives from the parent.

    Returns:
        The time of each answer, in seconds.

    Raises:
        RuntimeError: the server is not healthy.
    """
    address = urlsplit(url)
    client = http.client.HTTPConnection(
        address.hostname or "", address.port or http.client.HTTP_PORT, timeout=_TIMEOUT_SECONDS
    )
    took = []
    while not parent.poll(_PAUSE_SECONDS):
        began = time.perf_counter()
        client.request("GET", "/health")
        answer = client.getresponse()
        answer.read()
        took.append(time.perf_counter() - began)
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"/health answers {answer.status}")
    client.close()
    return took
