"""The way into a pool of Mooncake's store, which is the same for the manager and for engines: Mooncake's own client."""

import atexit
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

MISSING: Final = -704
"""What Mooncake answers where nothing has the name."""
_BUFFER_BYTES: Final = 256 * 2**20
_ANSWER_SECONDS: Final = 3.0
"""That a master may take before it is connected to."""
_END_SECONDS: Final = 10.0
"""That calls under way have when the process ends: as long as one may take whose master and node hang."""
_MASTER: Final = re.compile(r"(?P<host>[-_.A-Za-z0-9]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_PATIENCE: Final = {
    "MC_STORE_CLIENT_SETUP_RETRIES": "1",
    "MC_RPC_TIMEOUT_MS": "5000",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "5",
    "MC_TCP_STATUS_TIMEOUT_SEC": "5",
}
"""Of Mooncake's client with a master or a node that hangs; its own is 90 s to connect, and 30 s for each call."""
_lock = threading.Lock()
_clients: dict[str, Any] = {}
"""By master."""


class _Calls:
    """The calls under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._bytes = 0
        self._is_over = False

    @contextmanager
    def one(self, size: int) -> Iterator[None]:
        """One that moves so many bytes, as soon as there is room for them beside what others move."""
        buffer = _buffer_bytes()
        if size > buffer:
            raise OSError(f"an object of {size} bytes needs a MOONCAKE_LOCAL_BUFFER_SIZE above {buffer}")
        # The buffer has gaps: what others move must leave some of it.
        most = buffer * 3 // 4 - size
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or not (size and self._bytes) or self._bytes <= most)
            if self._is_over:
                raise OSError("Mooncake is used no more: this process ends")
            self._count += 1
            self._bytes += size
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._bytes -= size
                self._changed.notify_all()

    def end(self) -> None:
        """Let none begin any more, and wait for those under way."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._count, _END_SECONDS)


_calls = _Calls()


@contextmanager
def using(master: str, size: int = 0) -> Iterator[Any]:
    """The client of a pool, for one call; what the call gives is let go of before this ends.

    The process does not end in the midst of it, which would abort it. And Mooncake fails where what is on its way at a
    time does not fit its buffer, so who would be too much waits.

    Args:
        master: host and port of Mooncake's master.
        size: bytes that are moved.

    Raises:
        OSError: as for :func:`connect`; or so much never fits, or the process ends.
    """
    client = connect(master)
    with _calls.one(size):
        yield client


def connect(master: str) -> Any:
    """The process's client of a pool, to which it gives no memory of its own. Any number of threads may use it.

    It stays until the process ends: one that is closed while it is used, or is used after that, ends the process.

    How it moves bytes is said by Mooncake's own variables: ``MOONCAKE_PROTOCOL`` (``tcp``), ``MOONCAKE_DEVICE`` (for
    ``rdma``), ``MOONCAKE_LOCAL_HOSTNAME`` (the address from which the master is reached),
    ``MOONCAKE_LOCAL_BUFFER_SIZE`` (bytes, 256 MiB; what is on its way at a time has to fit) and
    ``MOONCAKE_TE_META_DATA_SERVER`` (``P2PHANDSHAKE``).

    Args:
        master: host and port of Mooncake's master.

    Raises:
        OSError: the client is not installed, or the master does not answer.
    """
    if master not in _clients:
        make = _client_class()
        own_address = _answered(master)
        with _lock:
            if master not in _clients:
                _clients[master] = _connected(make(), master, own_address)
    return _clients[master]


def _client_class() -> Any:
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    try:
        from mooncake.store import MooncakeDistributedStore
    except ImportError as error:
        raise OSError(
            "storages of type Mooncake need its client, and the package libibverbs1: pip install "
            f"mooncake-transfer-engine, or mooncake-transfer-engine-non-cuda where there is no CUDA ({error})"
        ) from None
    return MooncakeDistributedStore


def _connected(store: Any, master: str, own_address: str) -> Any:
    given = os.environ.get
    code = store.setup(
        given("MOONCAKE_LOCAL_HOSTNAME") or own_address,
        given("MOONCAKE_TE_META_DATA_SERVER") or "P2PHANDSHAKE",
        0,
        _buffer_bytes(),
        given("MOONCAKE_PROTOCOL") or "tcp",
        given("MOONCAKE_DEVICE") or "",
        master,
    )
    if code:
        raise OSError(f"Mooncake's master at {master} can't be used (code {code})")
    # After the threads of executors have ended, and before daemons are stopped in the midst of a call.
    atexit.register(_calls.end)
    return store


def pinned() -> Any:
    """How objects are written: Mooncake evicts none of them, as quotas and floors of tenants are not known to it."""
    from mooncake.store import ReplicateConfig

    config = ReplicateConfig()
    config.with_hard_pin = True
    return config


def check_master(master: str) -> tuple[str, int]:
    """Host and port of a master.

    Raises:
        ValueError: it is no ``HOST:PORT``.
    """
    found = _MASTER.fullmatch(master)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError(f"{master!r} is no master of Mooncake's; write it as HOST:PORT, such as mooncake-master:50051")
    return found["host"].strip("[]"), int(found["port"])


def _answered(master: str) -> str:
    """See that a master answers; returns the address that this machine has where it is.

    While Mooncake's client connects, no other thread of the process runs, for seconds where nobody answers. So it does
    that only if somebody does: a master hangs up at once on what is no message to it.

    Raises:
        OSError: nobody answers there.
    """
    try:
        with socket.create_connection(check_master(master), _ANSWER_SECONDS) as probe:
            probe.sendall(bytes(64))
            with suppress(ConnectionResetError):
                probe.recv(1)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise OSError(f"Mooncake's master at {master} does not answer: {error}") from error


def _buffer_bytes() -> int:
    given = os.environ.get("MOONCAKE_LOCAL_BUFFER_SIZE", "")
    if given and not (given.isascii() and given.isdecimal() and int(given)):
        raise OSError(f"MOONCAKE_LOCAL_BUFFER_SIZE must be a number of bytes, and not {given!r}")
    return int(given or _BUFFER_BYTES)
