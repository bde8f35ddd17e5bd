"""Reads the lines of a trace, which may be gzipped, and the values in the lines."""

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from tenantzone_replay.traces.load import MAX_TOKENS, TraceError
from tenantzone_replay.traces.readers.seen import Seen

_LONGEST_LINE: Final = 2**23
"""Maximum number of characters of a line. Even a line for a prompt of four million tokens is shorter."""


@contextmanager
def _opened(path: Path, seen: Seen) -> Iterator[TextIO]:
    """Opens a file as UTF-8 text, and skips a byte order mark. Decompresses a file whose name ends in ``.gz``."""
    with (
        seen.opened(path) as file,
        gzip.open(file) if path.suffix == ".gz" else file as plain,
        io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text,
    ):
        yield text


def first_line(path: Path, seen: Seen | None = None) -> str:
    """Returns the first line that is not blank, or an empty string if all lines are blank.

    Raises:
        TraceError: the file can't be read.
    """
    return next((line.strip() for _, line in text_lines(path, seen) if line.strip()), "")


def text_lines(path: Path, seen: Seen | None = None) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file with their numbers, from 1. Reads one line at a time, up to the maximum length.

    Args:
        path: the file.
        seen: the file's state from earlier reads. None if the file is read only once.

    Raises:
        TraceError: the file can't be read, is not UTF-8 text, or has a line that is too long.
    """
    number = 0
    try:
        with _opened(path, seen or Seen()) as file:
            while line := file.readline(_LONGEST_LINE + 1):
                number += 1
                if len(line) > _LONGEST_LINE:
                    raise TraceError(
                        f"{path}, line {number}: the line has more than {_LONGEST_LINE:,} characters, so the file is "
                        "not a trace; give the path of a trace"
                    )
                yield number, line
    except (EOFError, zlib.error):
        raise TraceError(
            f"{path}, after line {number}: the gzip data is truncated or corrupt; copy the file again"
        ) from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}, after line {number}: the file is not UTF-8 text; give the path of a trace") from None
    except OSError as error:
        raise TraceError(f"{path}, after line {number}: {error.strerror or error}") from None


def json_lines(path: Path, seen: Seen | None = None) -> Iterator[tuple[str, Any]]:
    """Yields the location, for messages, and the JSON value of each line that is not blank.

    Raises:
        TraceError: a line is not JSON.
    """
    for number, line in text_lines(path, seen):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{place}: invalid JSON: {error}") from None
        yield place, found


def csv_rows(path: Path, *columns: str, seen: Seen | None = None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the location, for messages, and the values by column of each row of a CSV file with a header.

    Raises:
        TraceError: one of ``columns`` is missing, or the file is not valid CSV.
    """
    rows = csv.DictReader(line for _, line in text_lines(path, seen))
    try:
        while rows.fieldnames is not None and not "".join(rows.fieldnames).strip():
            # The line is blank. Unset the header, so that the reader takes it from the next line.
            rows.fieldnames = None
        for column in columns:
            if column not in (rows.fieldnames or ()):
                raise TraceError(
                    f"{path}: column {column!r} is missing; the columns are {', '.join(rows.fieldnames or ())[:200]}"
                )
        for row in rows:
            yield f"{path}, line {rows.line_num}", row
    except csv.Error as error:
        raise TraceError(f"{path}, line {rows.line_num}: invalid CSV: {error}") from None


def members(place: str, line: Any) -> Mapping[str, Any]:
    """Returns the line if it is a JSON object.

    Raises:
        TraceError: the line is not an object.
    """
    if not isinstance(line, dict):
        raise TraceError(f"{place}: expected a JSON object, found {str(line)[:50]!r}")
    return line


def name(line: Mapping[str, Any], member: str) -> str:
    """Returns a member as text, even if it is a number. Returns "" if the member is missing or null."""
    found = line.get(member)
    return "" if found is None else str(found)


def number(place: str, line: Mapping[str, Any], *names: str, default: float | None = None) -> float:
    """Returns the value of the first named member that exists, as a number of at least 0.

    Raises:
        TraceError: no named member exists and no default is given, or the value is not a number from 0 to 10^15.
    """
    for name in names:
        if line.get(name) not in (None, ""):
            try:
                found = float(line[name])
            except OverflowError:
                found = math.inf
            except (TypeError, ValueError):
                found = -1.0
            if not 0 <= found < 1e15:
                expected = "below 10^15; times are seconds or milliseconds" if found > 0 else "of at least 0"
                raise TraceError(f"{place}: {name} is {str(line[name])[:50]!r}; expected a number {expected}")
            return found
    if default is None:
        raise TraceError(f"{place}: {' or '.join(names)} is missing")
    return default


def whole(place: str, line: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """Returns the value of the first named member that exists, rounded down to an integer. Raises like `number`."""
    return int(number(place, line, *names, default=default))


def count(place: str, line: Mapping[str, Any], *names: str, default: int | None = None, most: int = MAX_TOKENS) -> int:
    """Returns the value of the first named member that exists, as a count of tokens or other units, rounded down.

    Raises:
        TraceError: as in `number`, or the value is larger than ``most``.
    """
    found = whole(place, line, *names, default=default)
    if found > most:
        raise TraceError(f"{place}: {' or '.join(names)} is {found:,}; expected at most {most:,}")
    return found


def seconds(place: str, line: Mapping[str, Any], *names: str) -> float:
    """Returns the value of the first named member that exists, in seconds.

    The value may be a number, or a date with a time, which is converted to Unix time. Dates without a time zone are in
    UTC.

    Raises:
        TraceError: no named member exists, or the value is not a time.
    """
    for name in names:
        text = line.get(name)
        if text in (None, ""):
            continue
        if isinstance(text, str):
            try:
                return number(place, {name: float(text)}, name)
            except TraceError:
                raise
            except ValueError:
                pass
            try:
                # Shorten the fraction of the seconds, because Azure writes seven digits, but Python reads only six.
                date = datetime.fromisoformat(_six_digits(text.strip()))
            except ValueError:
                raise TraceError(f"{place}: {name} is {text[:50]!r}; expected seconds, or a date and a time") from None
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        break
    return number(place, line, *names)


def _six_digits(text: str) -> str:
    whole, point, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :]
    return f"{whole}{point}{digits[:6]:0<6}{zone}" if point else text
