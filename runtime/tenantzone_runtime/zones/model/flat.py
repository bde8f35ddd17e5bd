"""Flat copies: cheap snapshots that store the values of many objects one after the other in a single list.

Python's garbage collector counts newly created containers, and traverses all containers after a certain number. A flat
copy is only one container, regardless of its length.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any


def put_mapping(values: list[Any], mapping: Mapping[Any, Any]) -> None:
    """Append the current items of a mapping to ``values``."""
    values.append(len(mapping))
    values += mapping
    values += mapping.values()


def take(values: Iterator[Any], count: int) -> tuple[Any, ...]:
    """Returns the next ``count`` values of a flat copy."""
    return tuple(islice(values, count))


def take_mapping(values: Iterator[Any]) -> dict[Any, Any]:
    """Returns the next mapping of a flat copy. :func:`put_mapping` must have appended it."""
    count = next(values)
    keys = take(values, count)
    return dict(zip(keys, take(values, count), strict=True))
