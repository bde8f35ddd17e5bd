"""Values of many objects in one list, one after the other: a copy that is cheap to take, and is read later.

Python's collector counts the containers that are made, and walks through all there are once there have been enough. A
list that only grows longer is one container, however much is copied into it.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any


def put_mapping(values: list[Any], mapping: Mapping[Any, Any]) -> None:
    """Append what a mapping holds now."""
    values.append(len(mapping))
    values += mapping
    values += mapping.values()


def take(values: Iterator[Any], count: int) -> tuple[Any, ...]:
    """The next values."""
    return tuple(islice(values, count))


def take_mapping(values: Iterator[Any]) -> dict[Any, Any]:
    """What :func:`put_mapping` appended."""
    count = next(values)
    keys = take(values, count)
    return dict(zip(keys, take(values, count), strict=True))
