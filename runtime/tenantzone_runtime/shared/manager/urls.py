"""Checks URLs of KV-cache managers. It imports no dependencies of vLLM, since the command line uses it before vLLM."""

from urllib.parse import SplitResult, urlsplit

from tenantzone_contract.keys.tls import TlsFiles


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
        raise ValueError(f"{url!r} is not a valid URL of a KV-cache manager; use the form http://HOST:9470")
    return parts


def check_tls(url: str, files: TlsFiles) -> None:
    """Check that TLS files are only given for an https URL.

    Raises:
        ValueError: there are files for another URL, which would not be used.
    """
    if files.paths and urlsplit(url).scheme != "https":
        raise ValueError(f"certificates require a URL that begins with https, but the URL is {url}")
