"""Splits long work outside the steps into short turns."""

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import TypeVar

_PAUSE_SECONDS = 0.0002
_TURN_SECONDS = 0.0005

T = TypeVar("T")


def in_turns(items: Iterable[T], at_once: int) -> Iterator[list[T]]:
    """Generate the items in batches, with pauses in which the engine can use the interpreter.

    A pause also lets another thread take a lock that was held during a batch. Without the pause, the lock would be
    taken again before the waiting thread has woken up.
    """
    left = iter(items)
    while batch := list(islice(left, at_once)):
        yield batch
        time.sleep(_PAUSE_SECONDS)


def hold_in_turns(lock: AbstractContextManager[object], parts: Iterator[object]) -> None:
    """Do work with the lock held, and release it for a pause after each turn.

    Args:
        lock: protects the objects of the work.
        parts: iterates over the parts of the work, and does one part per iteration. A turn has at least one part.
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
