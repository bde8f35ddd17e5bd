"""Parsers for the values of options. Each error message is one line that states which values are expected."""

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
        raise ArgumentTypeError(f"expected at most {MAX_TENANTS:,} tenants, got {text}")
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
        raise ArgumentTypeError(f"expected a fraction above 0, such as 0.5 or 50%, got {text!r:.60}")
    return number


def part_of_all(text: str) -> float:
    """Parses a fraction above 0 and up to 1, written as 0.95 or 95%."""
    number = _part(text)
    if not 0 < number <= 1:
        raise ArgumentTypeError(f"expected a fraction in (0, 1], such as 0.95 or 95%, got {text!r:.60}")
    return number


def object_name(text: str) -> str:
    """Parses the name of a ZonePool."""
    if not _OBJECT_NAME.fullmatch(text):
        raise ArgumentTypeError(
            "expected the name of a ZonePool, at most 63 lowercase letters and digits with '-' or '.' between, got "
            f"{text!r:.60}"
        )
    return text


def file_to_write(text: str) -> Path:
    """Parses the path of an output file. Its folder must exist, and the file must be writable."""
    path = Path(text)
    with _places_that_can_be_looked_at():
        if path.is_dir():
            raise ArgumentTypeError(f"{text!r} is a folder; give the path of a file")
        if not path.parent.is_dir():
            raise ArgumentTypeError(f"there is no folder {str(path.parent)!r}; create it, or choose another path")
        return _writable(path, path if path.exists() else path.parent)


def folder_to_write(text: str) -> Path:
    """Parses the path of an output folder. If it does not exist, it must be possible to create it and its parents."""
    path = Path(text)
    with _places_that_can_be_looked_at():
        there = next(each for each in (path, *path.absolute().parents) if each.exists())
        if not there.is_dir():
            raise ArgumentTypeError(f"{str(there)!r} is a file; give the path of a folder")
        return _writable(path, there)


@contextmanager
def _places_that_can_be_looked_at() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArgumentTypeError(f"{str(error.filename)!r:.60}: {error.strerror}; choose another path") from None


def _writable(path: Path, there: Path) -> Path:
    if not os.access(there, os.W_OK):
        raise ArgumentTypeError(f"{str(there)!r} is not writable; choose another path")
    return path


def _part(text: str) -> float:
    return _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def _number(text: str) -> float:
    """Returns the number, or NaN if the text is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
