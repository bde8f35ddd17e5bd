"""Creates the shared tier of one engine from the engine's flags and its pool's salt key."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tenantzone_contract.keys.tls import DEFAULT_TLS, TlsFiles
from tenantzone_contract.zone_config.instance import Instance
from tenantzone_runtime.shared.manager.client import ManagerClient
from tenantzone_runtime.shared.sealing import zone_seal
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.storage.storages import AllStorages, Storages
from tenantzone_runtime.shared.tier import SharedTier
from tenantzone_runtime.shared.transfers.writing import Shape

_TOKEN_SECONDS: Final = 2.0
"""Seconds after which the token file is read again, so that a corrected token is soon used."""


def open_shared_tier(
    url: str,
    token_file: Path | None,
    shape: Shape,
    *,
    salt_key: Callable[[], bytes],
    has_pool_key: Callable[[], bool],
    instance: Callable[[str], Instance],
    tls: TlsFiles = DEFAULT_TLS,
    settings: SharedSettings | None = None,
    storages: Storages | None = None,
) -> SharedTier:
    """Returns the shared tier of one engine. It sends no query to the manager before it has a config.

    Args:
        url: URL of the manager's HTTP port.
        token_file: file with the bearer token to send; None to send no token.
        shape: size and shape of the engine's chunks.
        salt_key: returns the current salt key.
        has_pool_key: returns whether the current salt key is the pool's key, and not this engine's own key.
        instance: returns the instance to which the chunks of a tenant's zone belong.
        tls: trusted CA certificates and client certificate, for an https URL.
        settings: settings of queries and transfers; None for the defaults.
        storages: reads and writes chunks; None for the types of storages that are built in.

    Raises:
        ValueError: the URL is invalid.
    """
    client = ManagerClient(url, _TokenFile(token_file) if token_file is not None else str, tls)
    return SharedTier(
        client,
        storages or AllStorages(),
        shape,
        lambda tenant, purge: zone_seal(salt_key(), instance(tenant), purge),
        has_pool_key,
        settings or SharedSettings(),
    )


class _TokenFile:
    """Reads the bearer token from a file, which may change. If the file can't be read, returns the previous token."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._read = -_TOKEN_SECONDS
        self._token = ""

    def __call__(self) -> str:
        with self._lock:
            now = time.monotonic()
            if now - self._read >= _TOKEN_SECONDS:
                try:
                    self._token = self._path.read_text().strip()
                except (OSError, UnicodeDecodeError):
                    return self._token
                self._read = now
            return self._token
