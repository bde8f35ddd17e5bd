"""The way into a pool of Mooncake's store, which is the same for the manager and for engines: Mooncake's own client."""

import os
import socket
import threading
from typing import Any, Final

MISSING: Final = -704
"""What Mooncake answers where nothing has the name."""
_BUFFER_BYTES: Final = 256 * 2**20
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
    with _lock:
        if master not in _clients:
            _clients[master] = _connected(master)
        return _clients[master]


def _connected(master: str) -> Any:
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    try:
        from mooncake.store import MooncakeDistributedStore
    except ImportError as error:
        raise OSError(
            "storages of type Mooncake need its client, and the package libibverbs1: pip install "
            f"mooncake-transfer-engine, or mooncake-transfer-engine-non-cuda where there is no CUDA ({error})"
        ) from None
    store = MooncakeDistributedStore()
    given = os.environ.get
    code = store.setup(
        given("MOONCAKE_LOCAL_HOSTNAME") or _own_address(master),
        given("MOONCAKE_TE_META_DATA_SERVER") or "P2PHANDSHAKE",
        0,
        _buffer_bytes(),
        given("MOONCAKE_PROTOCOL") or "tcp",
        given("MOONCAKE_DEVICE") or "",
        master,
    )
    if code:
        raise OSError(f"Mooncake's master at {master} can't be used (code {code})")
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
    host, colon, port = master.rpartition(":")
    if not (host and colon and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"{master!r} is no master of Mooncake's; write it as HOST:PORT, such as mooncake-master:50051")
    return host.strip("[]"), int(port)


def _own_address(master: str) -> str:
    """The address that this machine has where the master is; nothing is sent to find it out.

    Raises:
        OSError: the host has no address, or no way leads there.
    """
    host, port = check_master(master)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _buffer_bytes() -> int:
    given = os.environ.get("MOONCAKE_LOCAL_BUFFER_SIZE", "")
    if given and not (given.isascii() and given.isdecimal() and int(given)):
        raise OSError(f"MOONCAKE_LOCAL_BUFFER_SIZE must be a number of bytes, and not {given!r}")
    return int(given or _BUFFER_BYTES)
