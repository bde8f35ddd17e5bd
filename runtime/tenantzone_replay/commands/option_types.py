"""Parsers for the values of options. Each error is one line that says which values are expected."""

import math
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tenantzone_replay.traces.load import MAX_TENANTS

_MOST: Final = 2**31 - 1
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
"""Pattern of the names that the CRD accepts in ``spec.pool``."""


def whole(least: int = 1, most: int = _MOST) -> Callable[[str], int]:
    """Returns a parser for integers from ``least`` to ``most``."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise ArgumentTypeError(f"expected a whole number from {least:,} to {most:,}, got {text!r:.60}")
        return number

    return read


def tenants(text: str) -> int:
    """Parses the number of tenants."""
    number = whole()(text)
    if number > MAX_TENANTS:
        raise ArgumentTypeError(f"{text} are more than {MAX_TENANTS:,}, as many as are compared")
    return number


def amount(text: str) -> float:
    """Parses a finite number of at least 0."""
    number = _number(text)
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"expected a number of at least 0, got {text!r:.60}")
    return number


def part(text: str) -> float:
    """Parses a fraction above 0, written as 0.5 or 50%. It may exceed 1."""
    number = _part(text)
    if not 0 < number < math.inf:
        raise ArgumentTypeError(f"{text!r:.60} is no part above 0, such as 0.5 or 50%")
    return number


def part_of_all(text: str) -> float:
    """Parses a fraction above 0 and up to 1, written as 0.95 or 95%."""
    number = _part(text)
    if not 0 < number <= 1:
        raise ArgumentTypeError(f"{text!r:.60} is no part above 0 and up to 1, such as 0.95 or 95%")
    return number


def object_name(text: str) -> str:
    """Parses the name of a ZonePool."""
    if not _OBJECT_NAME.fullmatch(text):
        raise ArgumentTypeError(
            f"{text!r:.60} is no name of a ZonePool: expected 63 small letters and digits at most, '-' or '.' between"
        )
    return text


def file_to_write(text: str) -> Path:
    """Parses the path of an output file, whose folder must exist. The file must be writable."""
    path = Path(text)
    with _places_that_can_be_looked_at():
        if path.is_dir():
            raise ArgumentTypeError(f"{text!r} is a folder; name a file in it")
        if not path.parent.is_dir():
            raise ArgumentTypeError(f"there is no folder {str(path.parent)!r}; make it first, or name another file")
        return _writable(path, path if path.exists() else path.parent)


def folder_to_write(text: str) -> Path:
    """Parses the path of an output folder, which exists or can be created together with its parents."""
    path = Path(text)
    with _places_that_can_be_looked_at():
        there = next(each for each in (path, *path.absolute().parents) if each.exists())
        if not there.is_dir():
            raise ArgumentTypeError(f"{str(there)!r} is a file; name a folder")
        return _writable(path, there)


@contextmanager
def _places_that_can_be_looked_at() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArgumentTypeError(f"{str(error.filename)!r:.60}: {error.strerror}; name another place") from None


def _writable(path: Path, there: Path) -> Path:
    if not os.access(there, os.W_OK):
        raise ArgumentTypeError(f"{str(there)!r} can't be written to; name another place")
    return path


def _part(text: str) -> float:
    return _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def _number(text: str) -> float:
    """Returns the number, or NaN if the text is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
