"""Checks URLs of KV-cache managers. It imports none of vLLM's dependencies, because the CLI uses it before vLLM."""

from urllib.parse import SplitResult, urlsplit

from tenantzone_contract.keys.tls import TlsFiles


def check_url(url: str) -> SplitResult:
    """Parse and check the URL of a manager, and return its parts.

    Raises:
        ValueError: the URL is invalid. The message shows a valid form.
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
        ValueError: files are given, but the URL is not an https URL, so they would not be used.
    """
    if files.paths and urlsplit(url).scheme != "https":
        raise ValueError(f"TLS files require an https:// URL of the manager, not {url}")
