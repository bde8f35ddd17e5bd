"""Splits long work into short turns with pauses, so that the engine's steps can run in between."""

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import TypeVar

_PAUSE_SECONDS = 0.0002
_TURN_SECONDS = 0.0005

T = TypeVar("T")


def in_turns(items: Iterable[T], at_once: int) -> Iterator[list[T]]:
    """Returns the items in batches of ``at_once``, and sleeps after each batch, so that other threads can run.

    The pause also lets a waiting thread take a lock that the caller holds during each batch. Without the pause, the
    caller would take the lock again before the waiting thread wakes up.
    """
    left = iter(items)
    while batch := list(islice(left, at_once)):
        yield batch
        time.sleep(_PAUSE_SECONDS)


def hold_in_turns(lock: AbstractContextManager[object], parts: Iterator[object]) -> None:
    """Do work in turns with the lock held, and release the lock for a pause after each turn.

    Args:
        lock: the lock to hold.
        parts: an iterator that does one part of the work per iteration. A turn has at least one part.
    """
    is_over = False
    while not is_over:
        with lock:
            began = time.perf_counter()
            is_over = True
            for _ in parts:
                if time.perf_counter() - began >= _TURN_SECONDS:
                    is_over = False
                    break
        if not is_over:
            time.sleep(_PAUSE_SECONDS)
