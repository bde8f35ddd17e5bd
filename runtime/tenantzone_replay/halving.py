"""Finds the smallest sufficient number by bisection."""

from collections.abc import Callable
from typing import Final

_HALVINGS: Final = 5


def halved(too_little: int, enough: int, is_enough: Callable[[int], bool]) -> int:
    """Bisect between two numbers in at most five steps; larger numbers are assumed to be at least as good.

    Args:
        too_little: not tried.
        enough: not tried.
        is_enough: whether a number is sufficient.

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
