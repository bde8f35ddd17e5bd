"""Rules that the S3 clients of the manager and of the engine share. botocore is imported on first use."""

from typing import Any, Final

_EXPIRED: Final = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
"""Error codes for expired or invalid temporary credentials. S3 sends these errors with the status 400."""


def create_client(session: Any, **options: Any) -> Any:
    """Returns botocore's S3 client, which raises an error instead of following redirects endlessly.

    Args:
        session: a session of botocore.
        options: options of the client.
    """
    client = session.create_client("s3", **options)
    client.meta.events.register_first("needs-retry.s3.HeadBucket", _check_redirect)
    return client


def is_denied(error: BaseException | None) -> bool:
    """Returns whether an error means that the server refused access, or that no credentials were found."""
    from botocore.exceptions import ClientError, NoCredentialsError

    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status in (401, 403) or error.response.get("Error", {}).get("Code") in _EXPIRED
    return isinstance(error, NoCredentialsError)


def _check_redirect(response: Any, **_: Any) -> None:
    """Fail if the server redirects botocore's request for the region of a bucket.

    botocore makes this request when another request is redirected without a region. If this request is redirected, too,
    botocore repeats it until Python's recursion limit, which takes seconds.

    Raises:
        OSError: the server redirects the request and names no region.
    """
    if response is None:
        return
    headers = response[0].headers
    if 300 <= response[0].status_code < 400 and "x-amz-bucket-region" not in headers:
        place = f" to {headers['location']!r}" if "location" in headers else ""
        raise OSError(f"the server redirects requests{place}; change the endpoint to the URL of the S3 server itself")
