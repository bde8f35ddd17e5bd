"""Finds a small sufficient number by bisection."""

from collections.abc import Callable
from typing import Final

_HALVINGS: Final = 5


def halved(too_little: int, enough: int, is_enough: Callable[[int], bool]) -> int:
    """Bisect between two numbers in at most five steps.

    Args:
        too_little: a number that is assumed to be too small, and is not tried.
        enough: a number that is assumed to be sufficient, and is not tried.
        is_enough: returns whether a number is sufficient. If it is, all larger numbers must be sufficient, too.

    Returns:
        the smallest number known to be sufficient.
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
