"""Conditions that are awaited."""

import time
from collections.abc import Callable

_POLL_SECONDS = 0.2


def await_that(condition: Callable[[], bool], what: str, *, seconds: float = 120) -> None:
    """
    Raises:
        AssertionError: it does not come to hold.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(_POLL_SECONDS)
