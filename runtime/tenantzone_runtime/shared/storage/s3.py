"""Reads and writes objects on S3 servers with the AWS client. All methods may block.

The client finds the endpoint, region and credentials in environment variables, files, or the pod's identity.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Lock
from typing import Any, Final

from tenantzone_contract.cache.s3 import create_client, is_denied
from tenantzone_runtime.shared.storage.places import ObjectPlace

_SECONDS: Final = 2.0
"""Timeout in seconds for connecting, and for each part of an answer. No load waits longer."""
_MISSING: Final = ("404", "NoSuchKey", "NotFound")


class S3Storages:
    """Access to S3 buckets. If the server denies a request, the next request loads the credentials again.

    Args:
        connect: creates a thread-safe botocore client.

    Raises:
        OSError: a client can't be created now.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._client = connect()

    def write(self, place: ObjectPlace, content: bytearray) -> None:
        """Write an object. Later reads return the whole object.

        Raises:
            OSError: the object could not be written.
        """
        with self._asked() as client:
            client.put_object(Bucket=place.bucket, Key=place.name, Body=bytes(content))

    def read(self, place: ObjectPlace, content: bytearray) -> bool:
        """Read an object into ``content``. Returns False if the object's length differs from that of ``content``.

        Raises:
            FileNotFoundError: the object does not exist.
            OSError: the object could not be read.
        """
        with self._asked() as client:
            answer = client.get_object(Bucket=place.bucket, Key=place.name)
            with closing(answer["Body"]) as body:
                if answer.get("ContentLength") != len(content):
                    return False
                filled = 0
                # Do not read more bytes than fit into ``content``, even if the server sends more than it announced.
                while part := body.read(min(2**20, len(content) - filled)):
                    content[filled : filled + len(part)] = part
                    filled += len(part)
                return filled == len(content)

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """Provide the client for one request, and convert the client's errors.

        Raises:
            OSError: the request failed.
        """
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            client = self._client
        try:
            with _storage_errors():
                yield client
        except OSError as error:
            if is_denied(error.__cause__):
                with self._lock:
                    # If another thread has already created a newer client, keep the newer client.
                    self._client = None if self._client is client else self._client
            raise


def open_s3() -> S3Storages:
    """Create access to S3 buckets with botocore.

    Raises:
        OSError: botocore is not installed, or finds no region or credentials.
    """
    try:
        from botocore.config import Config
        from botocore.session import get_session
    except ImportError:
        raise OSError("storages of type S3 need botocore; run pip install 'tenantzone[s3]'") from None
    config = Config(
        connect_timeout=_SECONDS, read_timeout=_SECONDS, max_pool_connections=16, retries={"total_max_attempts": 2}
    )

    def connect() -> Any:
        with _storage_errors():
            return create_client(get_session(), config=config)

    return S3Storages(connect)


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Convert the client's errors to the errors that file operations raise.

    Raises:
        FileNotFoundError: the object does not exist.
        OSError: any other error of the client.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _MISSING:
            raise FileNotFoundError(str(error)) from error
        raise OSError(str(error)) from error
    except (BotoCoreError, HTTPError) as error:
        raise OSError(str(error)) from error
    except OSError:
        raise
    except Exception as error:
        # botocore raises errors of many types if a server's answer is not what S3 sends, for example without a length.
        raise OSError(f"the S3 client failed: {error!r}") from error
