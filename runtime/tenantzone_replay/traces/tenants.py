"""Assigns the requests of a conversation to a tenant, if the trace does not name the tenants."""

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from tenantzone_replay.traces.load import MAX_NAME, MAX_TENANTS, Asked, TraceError

Rule = Literal["zipf", "equal"]

NAME_RULE: Final = (
    "a tenant of a zone must have a name of letters A to Z and digits, with '-', '_' and '.' between; rename these "
    "tenants in the trace and in their requests"
)
"""Text for error messages: what to do if a tenant's name is invalid in a zone."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")
"""Pattern of the names that the CRD accepts in ``spec.tenant``."""
_KNUTH: Final = 2_654_435_761
"""2^32 divided by the golden ratio, the multiplier of Knuth's hash."""


def can_have_zone(tenant: str) -> bool:
    """Returns whether this name is valid for the tenant of a zone."""
    return _NAME.fullmatch(tenant) is not None


def zipf_shares(count: int) -> list[float]:
    """Returns where ``count`` parts of the unit interval end. Their sizes are proportional to 1, 1/2, 1/3 and so on."""
    weights = [1 / (number + 1) for number in range(count)]
    total = sum(weights)
    return list(itertools.accumulate(weight / total for weight in weights))


def equal_shares(count: int) -> list[float]:
    """Returns the ends of ``count`` equal parts of the unit interval."""
    return [(number + 1) / count for number in range(count)]


SHARES: Final[dict[Rule, Callable[[int], list[float]]]] = {"zipf": zipf_shares, "equal": equal_shares}


class ByConversation:
    """Divides the unit interval among tenants. A conversation belongs to the tenant whose part contains its hash.

    The hash is a number from 0 to 1 (Knuth's multiplicative hash, *The Art of Computer Programming*, volume 3, 6.4).

    Args:
        tenants: the tenants, in the order of their parts.
        ends: the end of each tenant's part of the unit interval.
    """

    def __init__(self, tenants: Sequence[str], ends: Sequence[float]) -> None:
        self._tenants = tenants
        self._ends = ends

    def tenant_of(self, key: int) -> str:
        position = key * _KNUTH % 2**32 / 2**32
        return self._tenants[min(bisect.bisect_right(self._ends, position), len(self._tenants) - 1)]


def with_tenants(load: Iterable[Asked], count: int, rule: Rule) -> Iterator[Asked]:
    """Yields the same load, and assigns requests without a tenant to ``count`` tenants, ``tenant-0`` and so on.

    Raises:
        TraceError: the load has too many tenants, or the name of a tenant is too long or not printable.
    """
    by_conversation = ByConversation([f"tenant-{number}" for number in range(count)], SHARES[rule](count))
    known: set[str] = set()
    for number, asked in enumerate(load, 1):
        if asked.tenant not in known:
            if len(asked.tenant) > MAX_NAME or not asked.tenant.isprintable():
                name = repr(asked.tenant[:50])
                raise TraceError(
                    f"the tenant of request {number} is {name}; expected at most {MAX_NAME} printable characters"
                )
            known.add(asked.tenant)
            if len(known) > MAX_TENANTS:
                raise TraceError(
                    f"the load has more than the maximum of {MAX_TENANTS:,} tenants, at request {number}; "
                    f"take fewer requests (FILE,requests=N), or give the trace fewer tenants"
                )
        yield asked if asked.tenant else replace(asked, tenant=by_conversation.tenant_of(asked.conversation))
