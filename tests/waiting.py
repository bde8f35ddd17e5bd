"""Waiting for conditions."""

from collections.abc import Callable

from hack.demo.console import wait_until


def await_that(condition: Callable[[], bool], what: str, *, seconds: float = 120) -> None:
    """Waits until the condition holds.

    Raises:
        TimeoutError: it does not come to hold.
    """
    wait_until(condition, lambda: what, timeout=seconds, poll=0.2)
