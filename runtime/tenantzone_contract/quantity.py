"""Parses and formats amounts of bytes as Kubernetes users write them, for example ``8Gi``, ``500M``, ``1073741824``."""

import re
from decimal import Decimal
from typing import Final

MAX_COUNT: Final = 2**53 - 1
"""Largest integer that every JSON parser represents exactly."""

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_LONGEST: Final = 32
_UNITS: Final = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
}
_BINARY: Final = ("Ki", "Mi", "Gi", "Ti", "Pi")
_THOUSAND: Final = 1000
_TEN: Final = 10


def parse_bytes(quantity: int | str) -> int:
    """Parse an amount of bytes, rounded down to a whole number.

    Raises:
        ValueError: the text is not an amount of bytes.
    """
    if isinstance(quantity, int):
        return quantity
    match = _QUANTITY.fullmatch(quantity) if len(quantity) <= _LONGEST else None
    if match is None:
        raise ValueError(f'expected an amount of bytes such as "8Gi" or "500M", got {quantity[:_LONGEST]!r}')
    return int(Decimal(match[1]) * _UNITS[match[2] or ""])


def shown_bytes(count: float) -> str:
    """Format an amount of bytes for people, rounded to two or three digits: ``7.9Gi``."""
    if count < _THOUSAND:
        return f"{count:.0f}"
    for unit in _BINARY:
        count /= 1024
        if count < _THOUSAND or unit == _BINARY[-1]:
            break
    return f"{count:.1f}{unit}".replace(".0", "") if count < _TEN else f"{count:.0f}{unit}"
