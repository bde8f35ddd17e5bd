"""Connects to a pool of Mooncake's store, for the manager and for engines, through Mooncake's own client."""

import atexit
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

MISSING: Final = -704
"""Mooncake's code if no object has the name."""
_BUFFER_BYTES: Final = 256 * 2**20
_ANSWER_SECONDS: Final = 3.0
"""How long a master may take to answer before the client connects to it."""
_END_SECONDS: Final = 10.0
"""How long running calls may take when the process ends: as long as a call whose master and node hang."""
_MASTER: Final = re.compile(r"(?P<host>[-_.A-Za-z0-9]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_PATIENCE: Final = {
    "MC_STORE_CLIENT_SETUP_RETRIES": "1",
    "MC_RPC_TIMEOUT_MS": "5000",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "5",
    "MC_TCP_STATUS_TIMEOUT_SEC": "5",
}
"""Short time-outs of Mooncake's client for a master or node that hangs.

Its defaults are 90 s to connect, and 30 s per call.
"""
_lock = threading.Lock()
_clients: dict[str, Any] = {}
"""The clients by master."""


class _Calls:
    """The running calls."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._bytes = 0
        self._is_over = False

    @contextmanager
    def one(self, size: int) -> Iterator[None]:
        """Run one call that moves ``size`` bytes, once there is room for them next to those of other calls."""
        buffer = _buffer_bytes()
        if size > buffer:
            raise OSError(f"an object of {size} bytes needs a MOONCAKE_LOCAL_BUFFER_SIZE above {buffer}")
        # The buffer has gaps, so the other calls' bytes must leave some of it free.
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
        """Let no call begin any longer, and wait for the running ones."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._count, _END_SECONDS)


_calls = _Calls()


@contextmanager
def using(master: str, size: int = 0) -> Iterator[Any]:
    """Yields the client of a pool, for one call; the caller must release the call's result before the block ends.

    The process waits for the call before it ends, because ending would abort it. A call waits if its bytes do not fit
    into Mooncake's buffer together with those of other calls, because Mooncake would fail.

    Args:
        master: host and port of Mooncake's master.
        size: the number of bytes that the call moves.

    Raises:
        OSError: as for :func:`connect`; or ``size`` never fits, or the process is ending.
    """
    client = connect(master)
    with _calls.one(size):
        yield client


def connect(master: str) -> Any:
    """Returns the process's client of a pool, which gives no memory to the pool. Any number of threads may use it.

    It stays until the process ends: closing a client during use, or using it after that, ends the process.

    Mooncake's own variables configure how it moves bytes: ``MOONCAKE_PROTOCOL`` (``tcp``), ``MOONCAKE_DEVICE`` (for
    ``rdma``), ``MOONCAKE_LOCAL_HOSTNAME`` (the address from which the master is reached),
    ``MOONCAKE_LOCAL_BUFFER_SIZE`` (bytes, 256 MiB; the bytes of all running calls must fit) and
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
    # This runs after the threads of executors have ended, and before daemon threads are stopped in the middle of a
    # call.
    atexit.register(_calls.end)
    return store


def pinned() -> Any:
    """Returns how objects are written: Mooncake must not evict them, as it does not know tenants' quotas and floors."""
    from mooncake.store import ReplicateConfig

    config = ReplicateConfig()
    config.with_hard_pin = True
    return config


def check_master(master: str) -> tuple[str, int]:
    """Returns the host and port of a master.

    Raises:
        ValueError: it is not ``HOST:PORT``.
    """
    found = _MASTER.fullmatch(master)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError(f"{master!r} is no master of Mooncake's; write it as HOST:PORT, such as mooncake-master:50051")
    return found["host"].strip("[]"), int(found["port"])


def _answered(master: str) -> str:
    """Check that a master answers; returns this machine's address in the master's network.

    While Mooncake's client connects, no other thread of the process runs, for seconds if no server answers. So the
    client only connects after this check: a master closes the connection at once on bytes that are no message.

    Raises:
        OSError: no server answers there.
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
