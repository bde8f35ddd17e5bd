"""Does much work beside the steps, a little at a time."""

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import TypeVar

_PAUSE_SECONDS = 0.0002
_TURN_SECONDS = 0.0005

T = TypeVar("T")


def in_turns(items: Iterable[T], at_once: int) -> Iterator[list[T]]:
    """The items in batches, with pauses in which the engine has the interpreter to itself.

    Who waits for a lock that was held for one turn gets it in the pause: without one it would be taken again before
    the other thread has woken up.
    """
    left = iter(items)
    while batch := list(islice(left, at_once)):
        yield batch
        time.sleep(_PAUSE_SECONDS)


def hold_in_turns(lock: AbstractContextManager[object], parts: Iterator[object]) -> None:
    """Do work with the lock held, and let it go for such a pause each time that a turn is over.

    Args:
        lock: of what the work is done on.
        parts: of the work, each done when it is asked for. A turn has one at least.
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
