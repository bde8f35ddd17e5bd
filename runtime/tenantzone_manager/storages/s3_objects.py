"""Reading and writing of complete S3 objects, in threads because hashing and copying take long."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session
from urllib3.exceptions import HTTPError

from tenantzone_manager.storages.backend import StorageError


class S3Objects:
    """Reads and writes objects without blocking the event loop.

    Args:
        bucket: name of the bucket.
        options: options of the client, ``endpoint_url`` and ``region_name``, if they are set.
        credentials: AWS credentials file with a profile ``default``. If None, the default credential chain is used.
        timeout_seconds: timeout in seconds for connecting and for reading an answer.
    """

    def __init__(self, bucket: str, options: dict[str, str], credentials: Path | None, timeout_seconds: float) -> None:
        self._bucket = bucket
        self._options = options
        self._credentials = credentials
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._client: Any = None

    async def read(self, name: str, size: int) -> bytes:
        """Returns the bytes of an object.

        Raises:
            StorageError: the object can't be read, or has a different size.
        """

        def get(client: Any) -> bytes:
            answer = client.get_object(Bucket=self._bucket, Key=name)
            with answer["Body"] as body:
                if answer["ContentLength"] != size:
                    raise StorageError(f"the size of {name} is not {size} bytes")
                content: bytes = body.read()
            return content

        return await self._asked(get)

    async def write(self, name: str, content: bytes) -> None:
        """Write an object.

        Raises:
            StorageError: the object can't be written.
        """

        def put(client: Any) -> bytes:
            client.put_object(Bucket=self._bucket, Key=name, Body=content)
            return b""

        await self._asked(put)

    def close(self) -> None:
        """Close the connections. The next request reads the credentials again and opens new connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def _asked(self, ask: Callable[[Any], bytes]) -> bytes:
        def work() -> bytes:
            return ask(self._connected())

        try:
            return await asyncio.to_thread(work)
        except (BotoCoreError, ClientError, HTTPError, OSError) as error:
            raise StorageError(str(error)) from error

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                session = get_session()
                if self._credentials is not None:
                    session.set_config_variable("credentials_file", str(self._credentials))
                    session.set_config_variable("profile", "default")
                config = Config(
                    connect_timeout=self._timeout_seconds,
                    read_timeout=self._timeout_seconds,
                    retries={"total_max_attempts": 2},
                )
                self._client = session.create_client("s3", config=config, **self._options)
            return self._client
