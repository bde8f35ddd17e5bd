"""Parses amounts of KV-cache blocks or seats, given as a number or as a percentage of one engine's total."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_PERCENT = re.compile(r"(100|[1-9]?[0-9])%")

Percent = str
"""A whole percentage, from ``"0%"`` to ``"100%"``."""


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
"""An absolute number (``int``), or a percentage (``"25%"``) of a base that the field's description names."""


def percentage(share: Percent) -> int:
    """Returns a percentage such as ``"25%"`` as a number from 0 to 100."""
    return int(share.removesuffix("%"))


def floor_blocks(share: int | Percent, base: int) -> int:
    """Returns a share in blocks, rounded down, so that reservations never add up to more than the base.

    Args:
        share: an absolute number of blocks, or a percentage of ``base``.
        base: the number of blocks that equals 100%.
    """
    return share if isinstance(share, int) else base * percentage(share) // 100


def ceil_blocks(share: int | Percent, base: int) -> int:
    """Returns a share in blocks, rounded up, so that a limit is never below a reservation of the same share."""
    return share if isinstance(share, int) else -(-base * percentage(share) // 100)
