"""Connects the manager and engines to a pool of Mooncake's store, through Mooncake's own client."""

import atexit
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

MISSING: Final = -704
"""Mooncake's error code for a name that no object has."""
_BUFFER_BYTES: Final = 256 * 2**20
_ANSWER_SECONDS: Final = 3.0
"""Time limit for a master's answer to the check that runs before the client connects."""
_END_SECONDS: Final = 10.0
"""Maximum time to wait for running calls when the process ends; enough for a call whose master and node both hang."""
_MASTER: Final = re.compile(r"(?P<host>[-_.A-Za-z0-9]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_PATIENCE: Final = {
    "MC_STORE_CLIENT_SETUP_RETRIES": "1",
    "MC_RPC_TIMEOUT_MS": "5000",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "5",
    "MC_TCP_STATUS_TIMEOUT_SEC": "5",
}
"""Timeouts of Mooncake's client for a master or node that hangs.

Mooncake's defaults, 90 s to connect and 30 s per call, are too long.
"""
_lock = threading.Lock()
_clients: dict[str, Any] = {}
"""The connected clients, by the master's address."""


class _Calls:
    """Tracks the running calls and their bytes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._bytes = 0
        self._is_over = False

    @contextmanager
    def one(self, size: int) -> Iterator[None]:
        """Wait until the buffer has room for the ``size`` bytes of a call, and count the call while the block runs."""
        buffer = _buffer_bytes()
        if size > buffer:
            raise OSError(
                f"an object of {size} bytes does not fit into MOONCAKE_LOCAL_BUFFER_SIZE={buffer}; "
                "increase the variable"
            )
        # Leave a quarter of the buffer free, because fragmentation makes part of the buffer unusable.
        most = buffer * 3 // 4 - size
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or not (size and self._bytes) or self._bytes <= most)
            if self._is_over:
                raise OSError("Mooncake can no longer be used, because this process is ending")
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
        """Refuse new calls, and wait for the running calls."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._count, _END_SECONDS)


_calls = _Calls()


@contextmanager
def using(master: str, size: int = 0) -> Iterator[Any]:
    """Provide the client of a pool for one call. The caller must release the call's result before the block ends.

    The ``with`` block starts when Mooncake's buffer has room for this call in addition to the running calls. Without
    room, the call would fail. An exiting process waits for the end of the block, because an exit would abort the call.

    Args:
        master: host and port of Mooncake's master.
        size: the number of bytes that the call moves.

    Raises:
        OSError: the same cases as in :func:`connect`. Also, ``size`` exceeds the buffer, or the process is ending.
    """
    client = connect(master)
    with _calls.one(size):
        yield client


def connect(master: str) -> Any:
    """Returns the process's thread-safe client of a pool. The client contributes no memory to the pool.

    The client is never closed, because closing it during a call, or calling it afterwards, crashes the process.

    Environment variables of Mooncake configure the transfers. Their defaults are in parentheses:
    ``MOONCAKE_PROTOCOL`` (``tcp``), ``MOONCAKE_DEVICE`` (empty; only for ``rdma``), ``MOONCAKE_LOCAL_HOSTNAME`` (this
    machine's address in the master's network), ``MOONCAKE_LOCAL_BUFFER_SIZE`` (256 MiB, in bytes; must have room for
    all running calls) and ``MOONCAKE_TE_META_DATA_SERVER`` (``P2PHANDSHAKE``).

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
            f"storages of type Mooncake need the package libibverbs1 and Mooncake's client; run pip install "
            f"mooncake-transfer-engine, or mooncake-transfer-engine-non-cuda without CUDA ({error})"
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
    # Wait for running calls in an atexit function. Such a function runs after the threads of executors have ended, but
    # before daemon threads are stopped, which may happen in the middle of a call.
    atexit.register(_calls.end)
    return store


def pinned() -> Any:
    """Returns the write settings for objects that Mooncake must never evict. Only the manager evicts, by quotas."""
    from mooncake.store import ReplicateConfig

    config = ReplicateConfig()
    config.with_hard_pin = True
    return config


def check_master(master: str) -> tuple[str, int]:
    """Returns the host and port of a master.

    Raises:
        ValueError: ``master`` is not ``HOST:PORT``.
    """
    found = _MASTER.fullmatch(master)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError(
            f"{master!r} is not an address of a Mooncake master; write it as HOST:PORT, such as mooncake-master:50051"
        )
    return found["host"].strip("[]"), int(found["port"])


def _answered(master: str) -> str:
    """Check that a master answers, and return this machine's address in the master's network.

    Mooncake's client holds the GIL while it connects, which takes seconds if no server answers. Therefore, this check
    runs first. The check sends an invalid message, because a master then closes the connection at once.

    Raises:
        OSError: no server answers at that address.
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
        raise OSError(f"MOONCAKE_LOCAL_BUFFER_SIZE must be a number of bytes, not {given!r}")
    return int(given or _BUFFER_BYTES)
