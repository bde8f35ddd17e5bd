"""The cache of built programs, which outlives a clone."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.progress import clock, say


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/tenantzone``, made if need be."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "tenantzone"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def exclusive(path: Path, *, name: str) -> Iterator[None]:
    """Hold a file's lock, across processes; a second process waits and prints that it does.

    Args:
        path: the lock's file, made if need be and left there.
        name: starts the lines of progress.
    """
    began = spoke = time.monotonic()
    with path.open("a") as file:
        while not _try_lock(file.fileno()):
            if spoke == began or time.monotonic() - spoke > 5:
                spoke = time.monotonic()
                say(name, f"{clock(spoke - began)} waiting for another process that holds {path}")
            time.sleep(0.1)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
