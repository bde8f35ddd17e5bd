"""Checks the headers that determine how a request's body is read."""

from collections.abc import Sequence

from tenantzone_runtime.frontend.responses.answers import Refusal

_SINGLE = (b"host", b"content-length", b"content-type", b"transfer-encoding")
"""Headers that may not be repeated, because one server could use the first value, and another server the second."""


def check_headers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check that a request's headers describe the body unambiguously, and that the body is not compressed.

    Raises:
        Refusal: the headers are ambiguous, or the body is compressed.
    """
    names = [name.lower() for name, _ in headers]
    for single in _SINGLE:
        if names.count(single) > 1:
            raise Refusal(
                400, "duplicate_header", f"The request has several headers '{single.decode()}'; send only one"
            )
    if b"content-length" in names and b"transfer-encoding" in names:
        raise Refusal(400, "duplicate_header", "The request has both Content-Length and Transfer-Encoding; send one")
    for name, value in headers:
        codings = (
            {coding.strip().lower() for coding in value.split(b",")} if name.lower() == b"content-encoding" else ()
        )
        if not {b"identity", b""}.issuperset(codings):
            raise Refusal(
                415,
                "compressed_body",
                "Compressed request bodies are not supported; send the body uncompressed, without Content-Encoding",
            )
