"""Which running request is sent back to wait, so that its blocks can be used.

A request that is refused blocks is either entitled to them (its zone is within its reservation): then those who stand
on the reservation yield, lowest priority first, and their youngest request first. Or it is not: then only its own zone
may yield (S3, soft compaction). Never a zone within its own reservation.

S3 demotes the zone's least active session. In vLLM every running request makes progress in each step until the step's
token budget is spent, the oldest first: so the least active one is the youngest.

Requests from before any zone was declared have no zone (None): they are promised nothing, and yield like a borrower.
"""

from collections.abc import Iterable

from tenantzone_runtime.zones.standings import DEFAULT_PRIORITY
from tenantzone_runtime.zones.zone import Zone


def is_entitled(zone: Zone | None, count: int) -> bool:
    """Whether the zone could use ``count`` more blocks and still be within its reservation."""
    return zone is not None and zone.in_use + count <= zone.spec.quota.reserved


def is_borrower(zone: Zone | None) -> bool:
    """Whether the zone's requests use more than its reservation."""
    return zone is None or zone.in_use > zone.spec.quota.reserved


def may_yield(victim: Zone | None, beneficiary: Zone | None, count: int) -> bool:
    """Whether a running request of ``victim`` may be preempted so that ``beneficiary`` gets ``count`` blocks."""
    if victim is beneficiary:
        return True
    return is_entitled(beneficiary, count) and is_borrower(victim)


def choose_victim(running: Iterable[Zone | None], beneficiary: Zone | None, count: int) -> int | None:
    """Which running request yields next.

    Args:
        running: the zones of the running requests, oldest request first.
        beneficiary: the zone that needs blocks.
        count: how many.

    Returns:
        The index in ``running``: of a borrower's request (lowest priority, then youngest) if the beneficiary is
        entitled, else of the beneficiary's own youngest; None if nobody may yield.
    """
    entitled = is_entitled(beneficiary, count)
    best: tuple[int, int] | None = None
    for index, zone in enumerate(running):
        if zone is beneficiary:
            if entitled:
                continue
            rank = (0, -index)
        elif entitled and is_borrower(zone):
            rank = (DEFAULT_PRIORITY if zone is None else zone.spec.priority, -index)
        else:
            continue
        if best is None or rank < best:
            best = rank
    return None if best is None else -best[1]


def youngest(running: Iterable[Zone | None], zone: Zone) -> int | None:
    """The index of the zone's youngest running request; None if none runs."""
    return max((index for index, runner in enumerate(running) if runner is zone), default=None)
