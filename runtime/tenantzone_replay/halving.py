"""The least that is enough, between what is too little and what is enough."""

from collections.abc import Callable
from typing import Final

_HALVINGS: Final = 5


def halved(too_little: int, enough: int, is_enough: Callable[[int], bool]) -> int:
    """Halve what lies between, five times at most; more is taken to be at least as good as less.

    Args:
        too_little: which is not tried.
        enough: neither is this.
        is_enough: whether so much is.

    Returns:
        the least of those that were enough.
    """
    for _ in range(_HALVINGS):
        middle = (too_little + enough) // 2
        if middle == too_little:
            break
        if is_enough(middle):
            enough = middle
        else:
            too_little = middle
    return enough
