"""Objects on S3 servers, through AWS' own client, on threads that may block.

Endpoint, region and credentials are found as in every AWS client: environment, files, or the pod's identity.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from tenantzone_runtime.shared.places import ObjectPlace

_SECONDS: Final = 2.0
"""Seconds that a connection and each part of an answer may take: no load waits longer."""
_MISSING: Final = ("404", "NoSuchKey", "NotFound")


class S3Storages:
    """S3 buckets.

    Args:
        client: botocore's client, which any number of threads may use.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def write(self, place: ObjectPlace, content: bytearray) -> None:
        """Write an object; later reads return all of it.

        Raises:
            OSError: the object could not be written.
        """
        with _told():
            self._client.put_object(Bucket=place.bucket, Key=place.name, Body=bytes(content))

    def read(self, place: ObjectPlace, content: bytearray) -> bool:
        """Read an object. Returns False if it has another length than ``content``.

        Raises:
            OSError: the object could not be read; ``FileNotFoundError`` if it is missing.
        """
        with _told():
            answer = self._client.get_object(Bucket=place.bucket, Key=place.name)
            with closing(answer["Body"]) as body:
                if answer.get("ContentLength") != len(content):
                    return False
                filled = 0
                # Read at most what fits, whatever is sent: the next object uses the same buffer.
                while part := body.read(min(2**20, len(content) - filled)):
                    content[filled : filled + len(part)] = part
                    filled += len(part)
                return filled == len(content)


def open_s3() -> S3Storages:
    """Returns a client of S3 servers.

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
    with _told():
        return S3Storages(get_session().create_client("s3", config=config))


@contextmanager
def _told() -> Iterator[None]:
    """Convert the client's errors to those of files.

    Raises:
        OSError: the client's error.
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
