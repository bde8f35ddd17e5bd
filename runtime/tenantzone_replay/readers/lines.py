"""Lines of a trace, packed with gzip or not, and what may stand in them."""

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from tenantzone_replay.load import TraceError


def open_text(path: Path) -> TextIO:
    """A file to read, unpacked if its name ends in ``.gz``."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def first_line(path: Path) -> str:
    """The first line that is not empty; an empty one if there is none."""
    with open_text(path) as lines:
        return next((line.strip() for line in lines if line.strip()), "")


def json_lines(path: Path, *, may_be_cut_off: bool = False) -> Iterator[tuple[str, Any]]:
    """What each line says, and where it stands.

    Args:
        path: of the trace.
        may_be_cut_off: whether it may end in the midst of a line, which then is left out.

    Raises:
        TraceError: a line is no JSON.
    """
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            try:
                yield place, json.loads(line)
            except ValueError as error:
                if may_be_cut_off and not line.endswith("\n"):
                    return
                raise TraceError(f"{place}: no JSON: {error}") from None


def csv_rows(path: Path, *columns: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a table whose first line names its columns, and where each stands.

    Raises:
        TraceError: one of these columns is missing.
    """
    with open_text(path) as lines:
        rows = csv.DictReader(lines)
        for column in columns:
            if column not in (rows.fieldnames or ()):
                raise TraceError(f"{path}: column {column!r} is missing; it has {', '.join(rows.fieldnames or ())}")
        for row in rows:
            yield f"{path}, line {rows.line_num}", row


def members(place: str, line: Any) -> Mapping[str, Any]:
    """A line that is an object.

    Raises:
        TraceError: it is none.
    """
    if not isinstance(line, dict):
        raise TraceError(f"{place}: expected an object with members, found {str(line)[:50]!r}")
    return line


def number(place: str, line: Mapping[str, Any], *names: str, default: float | None = None) -> float:
    """The first of these members that is there, as a number of at least 0.

    Raises:
        TraceError: none is there and no default is given, or it is no such number.
    """
    for name in names:
        if line.get(name) not in (None, ""):
            try:
                found = float(line[name])
            except (TypeError, ValueError):
                found = -1.0
            if not 0 <= found < 1e15:
                raise TraceError(f"{place}: {name} is {str(line[name])[:50]!r}; expected a number of at least 0")
            return found
    if default is None:
        raise TraceError(f"{place}: {' or '.join(names)} is missing")
    return default


def count(place: str, line: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """The same, as a whole number."""
    return int(number(place, line, *names, default=default))


def seconds(place: str, line: Mapping[str, Any], *names: str) -> float:
    """The first of these members that is there, as seconds: a number, or a date with a time.

    Raises:
        TraceError: none is there, or it is no time.
    """
    for name in names:
        text = line.get(name)
        if isinstance(text, str):
            try:
                return float(text)
            except ValueError:
                pass
            try:
                # Azure's have seven digits behind the point, and Python reads six.
                return datetime.fromisoformat(_six_digits(text.strip())).timestamp()
            except ValueError:
                raise TraceError(f"{place}: {name} is {text[:50]!r}; expected seconds, or a date and a time") from None
    return number(place, line, *names)


def _six_digits(text: str) -> str:
    whole, point, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :]
    return f"{whole}{point}{digits[:6]:0<6}{zone}" if point else text
