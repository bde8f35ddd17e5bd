"""The shared tier of one engine, from what its flags and its pool say."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tenantzone_contract.instance import Instance
from tenantzone_contract.tls import DEFAULT_TLS, TlsFiles
from tenantzone_runtime.shared.client import ManagerClient
from tenantzone_runtime.shared.sealing import zone_seal
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.storages import AllStorages, Storages
from tenantzone_runtime.shared.tier import SharedTier
from tenantzone_runtime.shared.writing import Shape

_TOKEN_SECONDS: Final = 2.0
"""After which a token is read again: one that was wrong, and is put right, is shown soon."""


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
    """The shared tier of one engine. Nothing is asked before there is a config.

    Args:
        url: of the manager's HTTP port.
        token_file: has the bearer token to show; None: none is shown.
        shape: of chunks in memory.
        salt_key: the pool's, as it is when it is asked for.
        has_pool_key: whether that is one of the pool's.
        instance: what the chunks of a tenant's zone depend on.
        tls: whom to believe, and what to show, where the URL begins with https.
        settings: how chunks are moved.
        storages: moves bytes; None: files and S3.

    Raises:
        ValueError: the URL can't be used.
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
    """The token in a file that is renewed now and then; the one before while it can't be read."""

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
