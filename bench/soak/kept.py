"""Counts the objects that the zone core keeps, by the attribute that contains them."""

import itertools
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from statistics import fmean
from typing import Any, Final

MAX_GROWTH: Final = 1.5
"""Maximum ratio of counts on the last day to the first day, which allows for random variation."""
FEW: Final = 64
"""Growth in entries that is too small to report."""

_PLAIN: Final = {int, float, str, bool, type(None)}
"""Types that hold no references."""


def entries(*roots: object) -> Counter[str]:
    """Returns the number of entries by class and attribute, added up over all objects of the class.

    Follows all objects of the runtime's classes, and the collections that they contain.
    """
    counted: Counter[str] = Counter()
    seen: set[int] = set()
    left: list[tuple[str, object]] = [("", root) for root in roots]
    while left:
        name, thing = left.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Mapping):
            counted[name] += len(thing)
            left += ((name, each) for pair in thing.items() for each in pair if type(each) not in _PLAIN)
        elif isinstance(thing, (list, tuple, deque, Set)):
            # Don't count tuples, because they are records rather than collections.
            counted[name] += len(thing) if not isinstance(thing, tuple) else 0
            left += ((name, each) for each in thing if type(each) not in _PLAIN)
        elif type(thing).__module__.startswith("tenantzone_runtime."):
            counted[type(thing).__name__] += 1
            left += ((f"{type(thing).__name__}.{key}", value) for key, value in _attributes(thing))
    return counted


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    if is_dataclass(thing):
        names = [field.name for field in fields(thing)]
    else:
        slots = itertools.chain.from_iterable(getattr(each, "__slots__", ()) for each in type(thing).__mro__)
        names = [*slots, *getattr(thing, "__dict__", ())]
    return ((name, getattr(thing, name)) for name in names)


class Averages:
    """Average counts of entries by name, on the first day and on the latest day."""

    def __init__(self) -> None:
        self._days: list[list[Counter[str]]] = []

    def begin_day(self) -> None:
        self._days = [*self._days[:1], []]

    def look(self, *roots: object) -> None:
        """Count the present objects."""
        self._days[-1].append(entries(*roots))

    def by_name(self) -> dict[str, tuple[float, float]]:
        """Returns the averages on the first day and on the latest day, by name."""
        days = (self._days[0], self._days[-1])
        names = sorted(set().union(*itertools.chain.from_iterable(days)))
        first, newest = ({name: fmean(look[name] for look in day) for name in names} for day in days)
        return {name: (first[name], newest[name]) for name in names}

    def grown(self) -> dict[str, tuple[float, float]]:
        """Returns the averages that have grown by more than random variation explains."""
        return {
            name: (first, newest)
            for name, (first, newest) in self.by_name().items()
            if newest > MAX_GROWTH * first + FEW
        }
