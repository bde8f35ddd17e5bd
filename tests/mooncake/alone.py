"""Runs pytest in a separate network namespace that has only loopback: `unshare --net python -m …`."""

import array
import fcntl
import socket
import struct
import sys

import pytest

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1


def loopback_up() -> None:
    """Does what `ip link set lo up` does, on machines without it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = array.array("b", struct.pack("16sH14x", b"lo", 0))
        fcntl.ioctl(any_socket, _GET_FLAGS, request, True)
        (flags,) = struct.unpack_from("H", request, 16)
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


if __name__ == "__main__":
    loopback_up()
    sys.exit(pytest.main(sys.argv[1:]))
