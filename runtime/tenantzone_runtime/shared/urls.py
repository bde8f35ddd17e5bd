"""Checks URLs of KV-cache managers. The command line uses it before vLLM and its dependencies are known to exist."""

from urllib.parse import SplitResult, urlsplit

from tenantzone_contract.tls import TlsFiles


def check_url(url: str) -> SplitResult:
    """Returns the parts of a manager's URL.

    Raises:
        ValueError: the URL is invalid; the message shows a valid one.
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
    """Check that TLS files are only named for an https URL.

    Raises:
        ValueError: the files would not be used.
    """
    if files.paths and urlsplit(url).scheme != "https":
        raise ValueError(f"certificates are for a URL that begins with https, and it is {url}")
