"""Amounts of KV-cache blocks or of seats: a count, or a percentage of what one engine has."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_PERCENT = re.compile(r"(100|[1-9]?[0-9])%")

Percent = str
"""``"0%"`` to ``"100%"``, whole numbers."""


def _check(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('expected a whole number or a percentage such as "25%"')
    if isinstance(value, int):
        if value < 0:
            raise ValueError("expected a whole number that is not negative")
        return value
    if not _PERCENT.fullmatch(value):
        raise ValueError(f'expected a whole percentage from "0%" to "100%", got {value!r}')
    return value


BlockShare = Annotated[int | Percent, BeforeValidator(_check)]
"""Blocks as an absolute number (``int``) or as a percentage (``"25%"``) of a base that the field names."""


def percentage(share: Percent) -> int:
    """Returns the number in a percentage such as ``"25%"``."""
    return int(share.removesuffix("%"))


def floor_blocks(share: int | Percent, base: int) -> int:
    """Returns a share in blocks, rounded down: reservations never add up to more than there is.

    Args:
        share: an absolute number of blocks, or a percentage of ``base``.
        base: the blocks that a percentage refers to.
    """
    return share if isinstance(share, int) else base * percentage(share) // 100


def ceil_blocks(share: int | Percent, base: int) -> int:
    """Returns a share in blocks, rounded up: a limit is never below the same share as a reservation."""
    return share if isinstance(share, int) else -(-base * percentage(share) // 100)
