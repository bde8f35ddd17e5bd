"""Renders tables of text with aligned columns."""

import math
from collections.abc import Iterator, Sequence

_GAP = "  "


def render(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Iterates over the lines of a table, with numeric columns aligned to the right and other columns to the left."""
    is_number = [_are_numbers([row[column] for row in rows]) for column in range(len(headers))]
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    for row in (headers, *rows):
        cells = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, is_number, strict=True)
        )
        yield _GAP.join(cells).rstrip()


def shown(value: object) -> str:
    """Returns a value as the text of a table's cell; a dash if the value is unknown."""
    if value is None or value == "":
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Format seconds like an age in kubectl, for example ``45s``, ``12m``, ``7h`` or ``3d``; infinity is a dash."""
    if not math.isfinite(seconds):
        return "-"
    seconds = max(0.0, seconds)
    for unit, length, until in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172800)):
        if seconds < until:
            return f"{int(seconds / length)}{unit}"
    return f"{int(seconds / 86400)}d"


def _are_numbers(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell != "-"]
    return bool(known) and all(cell.replace(".", "", 1).isdigit() for cell in known)
