"""Much work beside the steps, a little at a time."""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

_PAUSE_SECONDS = 0.0002

T = TypeVar("T")


def in_turns(items: Iterable[T], at_once: int) -> Iterator[list[T]]:
    """So many at a time, with pauses in which the engine has the interpreter to itself.

    Who waits for a lock that was held for one turn gets it in the pause: without one it would be taken again before
    the other thread has woken up.
    """
    left = iter(items)
    while batch := list(islice(left, at_once)):
        yield batch
        time.sleep(_PAUSE_SECONDS)
