"""Finds a small number that is sufficient, by bisection."""

from collections.abc import Callable
from typing import Final

_HALVINGS: Final = 5


def halved(too_little: int, enough: int, is_enough: Callable[[int], bool]) -> int:
    """Returns a small sufficient number that at most five steps of bisection find, or ``enough`` if they find none.

    Args:
        too_little: a number that is too small. It is not tried.
        enough: a number that is sufficient. It is not tried.
        is_enough: returns whether a number is sufficient. All numbers above a sufficient number must be sufficient.
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
