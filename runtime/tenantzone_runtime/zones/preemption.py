"""Which zone must give up a running request.

A request that is refused blocks is either entitled to them (its zone is within its reservation): then those who stand
on the reservation yield, lowest priority first. Or it is not: then only its own zone may yield. Never a zone within its
own reservation.
"""

from collections.abc import Iterable

from tenantzone_runtime.zones.zone import Zone


def is_entitled(zone: Zone, count: int) -> bool:
    """Whether the zone could use ``count`` more blocks and still be within its reservation."""
    return zone.in_use + count <= zone.spec.quota.reserved


def is_borrower(zone: Zone) -> bool:
    """Whether the zone's requests use more than its reservation."""
    return zone.in_use > zone.spec.quota.reserved


def may_yield(victim: Zone, beneficiary: Zone, count: int) -> bool:
    """Whether a running request of ``victim`` may be preempted so that ``beneficiary`` gets ``count`` blocks."""
    if victim is beneficiary:
        return True
    return is_entitled(beneficiary, count) and is_borrower(victim)


def choose_victim(running: Iterable[Zone], beneficiary: Zone, count: int) -> int | None:
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
        if entitled:
            if zone is beneficiary or not is_borrower(zone):
                continue
            rank = (zone.spec.priority, -index)
        elif zone is beneficiary:
            rank = (0, -index)
        else:
            continue
        if best is None or rank < best:
            best = rank
    return None if best is None else -best[1]
