"""Flat copies: values of many objects in one list, one after the other, cheap to take and read later.

Python's garbage collector counts the containers that are made, and traverses all of them after a certain number. A
growing list is one container, however much is copied into it.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any


def put_mapping(values: list[Any], mapping: Mapping[Any, Any]) -> None:
    """Append what a mapping holds now to the values."""
    values.append(len(mapping))
    values += mapping
    values += mapping.values()


def take(values: Iterator[Any], count: int) -> tuple[Any, ...]:
    """Take the next values of a flat copy."""
    return tuple(islice(values, count))


def take_mapping(values: Iterator[Any]) -> dict[Any, Any]:
    """Take a mapping that :func:`put_mapping` appended to the values."""
    count = next(values)
    keys = take(values, count)
    return dict(zip(keys, take(values, count), strict=True))
