"""An S3 client for the event loop. Requests run in threads, because hashing and copying large objects takes long."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session
from urllib3.exceptions import HTTPError

from tenantzone_contract.cache.s3 import create_client
from tenantzone_manager.storages.backend import StorageError

_THREADS: Final = 16
"""Maximum number of simultaneous requests, not counting health checks."""

_T = TypeVar("_T")


class S3Client:
    """Makes requests to one S3 server.

    Args:
        options: ``endpoint_url`` and ``region_name`` for botocore's client, each only if it is set.
        credentials: AWS credentials file with a profile ``default``, which is reloaded when it changes. If None, the
            default credential chain is used, for example the environment or the pod's identity.
        timeout_seconds: timeout in seconds for connecting and for reading an answer.
    """

    def __init__(self, options: dict[str, str], credentials: Path | None, timeout_seconds: float) -> None:
        config = Config(
            connect_timeout=timeout_seconds,
            read_timeout=timeout_seconds,
            retries={"total_max_attempts": 2},
            max_pool_connections=_THREADS + 1,
        )
        self._options: dict[str, Any] = {"config": config, **options}
        self._credentials = credentials
        self._read_credentials = b""
        self._connecting = threading.Lock()
        """Held while credentials are read and a client is created, which may take long."""
        self._lock = threading.Lock()
        """Protects the client. Never held while anything is read."""
        self._client: Any = None
        # The threads end when this object is no longer referenced.
        self._threads = ThreadPoolExecutor(_THREADS, "s3")
        self._check_thread = ThreadPoolExecutor(1, "s3-check")

    async def ask(self, work: Callable[[Any], _T], *, is_check: bool = False) -> _T:
        """Call ``work`` in a thread, and return its result.

        Args:
            work: makes requests with the given botocore client. If this call is cancelled, the thread still completes.
            is_check: whether this is a health check, which must not wait for transfers of large objects.

        Raises:
            StorageError: a request failed, its answer is invalid, or the credentials can't be read.
        """

        def ask() -> _T:
            return work(self._connected())

        try:
            threads = self._check_thread if is_check else self._threads
            return await asyncio.get_running_loop().run_in_executor(threads, ask)
        except StorageError:
            raise
        except (BotoCoreError, ClientError, HTTPError, OSError) as error:
            raise StorageError(str(error)) from error
        except Exception as error:
            # botocore raises many other exceptions for an answer that S3 would not send, such as one without a length.
            raise StorageError(f"the S3 client failed: {error!r}") from error

    async def close(self) -> None:
        """Close the connections. The next request searches for credentials again, and opens new connections."""
        self._close()

    def _close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        with self._connecting:
            if self._credentials is not None:
                self._look_at(self._credentials)
            if (client := self._client) is None:
                session = get_session()
                if self._credentials is not None:
                    session.set_config_variable("credentials_file", str(self._credentials))
                    session.set_config_variable("profile", "default")
                client = create_client(session, **self._options)
                with self._lock:
                    self._client = client
            return client

    def _look_at(self, credentials: Path) -> None:
        """Close the connections if the credentials file has changed."""
        try:
            found = credentials.read_bytes()
        except OSError as error:
            raise StorageError(f"can't read the credentials file: {error}") from error
        if found != self._read_credentials:
            self._read_credentials = found
            self._close()
