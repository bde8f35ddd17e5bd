"""Where a KV-cache manager is. The command line asks, before vLLM and what it brings are known to be there."""

from urllib.parse import SplitResult, urlsplit

from tenantzone_contract.tls import TlsFiles


def check_url(url: str) -> SplitResult:
    """The parts of a manager's URL.

    Raises:
        ValueError: it is none; the message says what one is like.
    """
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{url!r} is no URL of a KV-cache manager; write it as http://HOST:9470")
    return parts


def check_tls(url: str, files: TlsFiles) -> None:
    """Check that files for TLS are named for a URL that has it.

    Raises:
        ValueError: they would be used for nothing.
    """
    if files.paths and urlsplit(url).scheme != "https":
        raise ValueError(f"certificates are for a URL that begins with https, and it is {url}")
