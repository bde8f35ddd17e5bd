"""Objects of S3 servers, by AWS' own client, on threads that may wait.

Endpoint, region and credentials are found as every AWS client finds them: environment, files, or the pod's identity.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Lock
from typing import Any, Final

from tenantzone_runtime.shared.places import ObjectPlace

_SECONDS: Final = 2.0
"""That a connection and each part of an answer may take: nobody waits for a load any longer."""
_MISSING: Final = ("404", "NoSuchKey", "NotFound")


class S3Storages:
    """Buckets. After a request that the server did not allow, the next one looks for credentials again.

    Args:
        connect: makes a client of botocore's, which any number of threads may use.

    Raises:
        OSError: there is none now.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._client = connect()

    def write(self, place: ObjectPlace, content: bytearray) -> None:
        """Write an object; who reads it after this reads all of it.

        Raises:
            OSError: it could not be written.
        """
        with self._asked() as client:
            client.put_object(Bucket=place.bucket, Key=place.name, Body=bytes(content))

    def read(self, place: ObjectPlace, content: bytearray) -> bool:
        """Read an object; False: it has another length than ``content``.

        Raises:
            OSError: it could not be read; ``FileNotFoundError``: it is not there.
        """
        with self._asked() as client:
            answer = client.get_object(Bucket=place.bucket, Key=place.name)
            with closing(answer["Body"]) as body:
                if answer.get("ContentLength") != len(content):
                    return False
                filled = 0
                # No more than there is room for, whatever is sent: the buffer is the next object's, too.
                while part := body.read(min(2**20, len(content) - filled)):
                    content[filled : filled + len(part)] = part
                    filled += len(part)
                return filled == len(content)

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """The client, for one request.

        Raises:
            OSError: the request failed.
        """
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            client = self._client
        try:
            with _told():
                yield client
        except OSError as error:
            if _is_shut_out(error.__cause__):
                with self._lock:
                    # Another thread may have made a newer one.
                    self._client = None if self._client is client else self._client
            raise


def open_s3() -> S3Storages:
    """A client of S3 servers.

    Raises:
        OSError: the client is not installed, or finds no region or credentials.
    """
    try:
        from botocore.config import Config
        from botocore.session import get_session
    except ImportError:
        raise OSError("storages of type S3 need botocore: pip install 'tenantzone[s3]'") from None
    config = Config(
        connect_timeout=_SECONDS, read_timeout=_SECONDS, max_pool_connections=16, retries={"total_max_attempts": 2}
    )

    def connect() -> Any:
        with _told():
            return get_session().create_client("s3", config=config)

    return S3Storages(connect)


def _is_shut_out(error: BaseException | None) -> bool:
    """Whether a server does not allow what was asked, or there was nothing to show to it."""
    from botocore.exceptions import ClientError, NoCredentialsError

    if isinstance(error, ClientError):
        return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in (401, 403)
    return isinstance(error, NoCredentialsError)


@contextmanager
def _told() -> Iterator[None]:
    """Errors of the client as those of files.

    Raises:
        OSError: what was wrong.
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
