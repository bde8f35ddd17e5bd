"""Where a KV-cache manager is. The command line asks, before vLLM and what it brings are known to be there."""

from urllib.parse import SplitResult, urlsplit


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
