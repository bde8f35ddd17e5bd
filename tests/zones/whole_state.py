"""The whole state of zones and their arbiter, to compare before and after something that must not change it."""

import itertools
from collections.abc import Mapping, Set
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType

from tenantzone_runtime.zones.model.fair_queue import FairQueue
from tenantzone_runtime.zones.schedule.backoff import BackoffSet

_SKIPPED = frozenset({"plan", "history", "_history", "looked_at", "looked_up", "_rng", "_depth", "__weakref__"})
"""Attributes that keep an answer until something changes, and those that belong to the test."""
_VALUES = (int, float, str, bytes, bool, type(None))
_CODE = (type, FunctionType, BuiltinMethodType, MethodType, partial)


def state_of(*roots):
    """Returns a comparable picture of all objects that can be reached from these.

    Heaps whose stale entries are removed when they are read count by their entries that are not stale.
    """
    picture, seen, stack = [], set(), list(roots)
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        parts = [part for part in _parts_of(each) if not isinstance(part, _CODE)]
        picture.append((type(each).__name__, [_as_value(part) for part in parts]))
        stack += [part for part in parts if not isinstance(part, (*_VALUES, itertools.count))]
    return picture


def _as_value(part):
    if isinstance(part, itertools.count):
        return repr(part)
    return part if isinstance(part, _VALUES) else id(part)


def _parts_of(each):
    if isinstance(each, FairQueue):
        yield from (each._reached, each._aside, each._tickets)
        yield from [account for _, ticket, account in sorted(each._heap, key=_ticket_of) if ticket == account.ticket]
    elif isinstance(each, BackoffSet):
        yield from (each._ledger, each._new, each._tickets, each._backed_off)
        for of, thresholds in sorted(each._thresholds.items()):
            for threshold, heap in sorted(thresholds._heaps.items()):
                live = sorted(entry[2] for entry in heap if entry[2] in each._backed_off)
                if live:
                    yield repr((of, threshold, live))
    elif isinstance(each, Mapping):
        for key, value in each.items():
            yield from (key, value)
    elif isinstance(each, (list, tuple, Set)) or hasattr(each, "popleft"):
        yield from each
    else:
        names = [
            name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ()) if name != "__weakref__"
        ]
        for name in [*getattr(each, "__dict__", ()), *names]:
            if name not in _SKIPPED and hasattr(each, name):
                yield name
                yield getattr(each, name)


def _ticket_of(entry):
    return entry[1]
