"""Checks the headers that say how a request's body is to be read."""

from collections.abc import Sequence

from tenantzone_runtime.door.answers import Refusal

_SINGLE = (b"host", b"content-length", b"content-type", b"transfer-encoding")
"""Of two of them, one server may believe the first, and another the second."""


def check_headers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check that a request's headers say one thing of its body, and that it is not compressed.

    Raises:
        Refusal: they do not, or it is.
    """
    names = [name.lower() for name, _ in headers]
    for single in _SINGLE:
        if names.count(single) > 1:
            raise Refusal(
                400, "duplicate_header", f"The request has several headers '{single.decode()}'; send one of them"
            )
    if b"content-length" in names and b"transfer-encoding" in names:
        raise Refusal(400, "duplicate_header", "The request has both Content-Length and Transfer-Encoding; send one")
    for name, value in headers:
        codings = (
            {coding.strip().lower() for coding in value.split(b",")} if name.lower() == b"content-encoding" else ()
        )
        if not {b"identity", b""}.issuperset(codings):
            raise Refusal(
                415, "compressed_body", "Compressed request bodies are not supported; send it without Content-Encoding"
            )
