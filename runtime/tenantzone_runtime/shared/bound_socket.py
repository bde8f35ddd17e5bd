"""A socket whose operations are all over by one deadline: a timeout bounds each, and whoever drips bytes gets many."""

import io
import socket
import time
from typing import Any


class BoundSocket:
    """A connected socket, as far as :mod:`http.client` uses one.

    Args:
        connected: the socket.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.deadline = 0.0
        """Of the monotonic clock; who uses the socket sets it, and gets a `TimeoutError` after it."""
        self._socket = connected

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            self.bound()
            left = left[self._socket.send(left) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Read what comes."""
        return io.BufferedReader(_BoundReads(self, self._socket.makefile("rb", buffering=0)))

    def close(self) -> None:
        """Close it, once nobody reads any more."""
        self._socket.close()

    def bound(self) -> None:
        """Give the next operation what time is left."""
        self._socket.settimeout(seconds_left(self.deadline))


class _BoundReads(io.RawIOBase):
    """Reads what comes, each time within the time that is left."""

    def __init__(self, of: BoundSocket, raw: io.RawIOBase) -> None:
        self._of = of
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._of.bound()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def seconds_left(deadline: float) -> float:
    """Until a deadline of the monotonic clock.

    Raises:
        TimeoutError: there are none.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("not in time")
    return left
