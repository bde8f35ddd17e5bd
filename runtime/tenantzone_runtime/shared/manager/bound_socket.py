"""A socket with one deadline for all operations. A timeout is not enough, because it limits only one operation."""

import io
import socket
import time
from typing import Any


class BoundSocket:
    """A connected socket with a deadline. It has only the methods that :mod:`http.client` uses.

    Args:
        connected: the socket.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.deadline = 0.0
        """Monotonic time after which operations raise `TimeoutError`. The user of the socket must set it."""
        self._socket = connected

    def sendall(self, data: bytes) -> None:
        """Send all of ``data``; raises `TimeoutError` after the deadline."""
        left = memoryview(data)
        while left:
            self.bound()
            left = left[self._socket.send(left) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Returns a buffered reader of the received data. Its reads obey the deadline."""
        return io.BufferedReader(_BoundReads(self, self._socket.makefile("rb", buffering=0)))

    def close(self) -> None:
        """Close the socket as soon as its readers are closed."""
        self._socket.close()

    def bound(self) -> None:
        """Set the timeout of the next operation to the remaining time."""
        self._socket.settimeout(seconds_left(self.deadline))


class _BoundReads(io.RawIOBase):
    """Reads received data until the deadline."""

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
    """Returns the seconds from now to a deadline. The deadline is a monotonic time.

    Raises:
        TimeoutError: the deadline has passed.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left
