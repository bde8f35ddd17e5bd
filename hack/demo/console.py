"""The demo's output: chapters, the commands it runs, and the progress of slow work."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REPORT_EVERY_SECONDS = 5.0
"""Interval of progress messages during a wait if the output is not a terminal."""


def _styled(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() else text


def chapter(title: str) -> None:
    """Print the title of a chapter."""
    print(f"\n{_styled('1;36', title)}\n{_styled('36', '─' * len(title))}", flush=True)


def say(text: str) -> None:
    """Print a text at once."""
    print(text, flush=True)


def command(text: str) -> None:
    """Show a command as the reader would type it."""
    print(_styled("1", f"$ {text}"), flush=True)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table whose columns are as wide as their longest cells."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        line = "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print("  " + (_styled("1", line) if row is header else line), flush=True)


@contextmanager
def took(what: str) -> Iterator[None]:
    """Print a message when the block starts, and its duration when it ends."""
    say(f"{what} …")
    began = time.monotonic()
    yield
    say(f"{what}: done in {time.monotonic() - began:.0f} s")


def wait_until(ready: Callable[[], bool], describe: Callable[[], str], *, timeout: float, poll: float = 0.5) -> None:
    """Wait for a condition, and show the progress.

    Args:
        ready: the condition, called every ``poll`` seconds; an exception from it ends the wait.
        describe: returns the current state as text.
        timeout: the maximum wait, in seconds.
        poll: the interval between two calls, in seconds.

    Raises:
        TimeoutError: the condition did not hold in time; the message has the description.
    """
    began = reported = time.monotonic()
    terminal = sys.stdout.isatty()
    while not ready():
        now = time.monotonic()
        if now - began > timeout:
            raise TimeoutError(f"after {timeout:.0f} s still waiting for {describe()}")
        if terminal:
            print(f"\r\x1b[K  {now - began:4.0f} s  waiting for {describe()}", end="", flush=True)
        elif now - reported >= REPORT_EVERY_SECONDS:
            reported = now
            say(f"  {now - began:4.0f} s  waiting for {describe()}")
        time.sleep(poll)
    if terminal:
        print("\r\x1b[K", end="", flush=True)
