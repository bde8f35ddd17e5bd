"""Preemption: which running request is preempted so that another request can use its blocks.

If a request that may not take blocks is entitled to them (its zone stays within its reservation), requests of zones
above their reservations are preempted, lowest priority first, and the youngest of a zone first. If it is not entitled,
only requests of its own zone may be preempted (S3, soft compaction). Requests of a zone within its reservation are
never preempted for another zone.

S3 preempts the zone's least active session. In vLLM, each step computes running requests from the oldest on until its
token budget is spent, so the least active request is the youngest. If clients give their requests priorities, the
engine's order of seniority uses these first.
"""

from collections.abc import Iterable

from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.model.zone import Zone


def choose_victim(running: Iterable[W], beneficiary: Zone, *, entitled: bool) -> W | None:
    """Choose the running request to preempt next.

    Args:
        running: the running requests, most senior first.
        beneficiary: the zone that needs blocks.
        entitled: whether the zone stays within its reservation with these blocks.

    Returns:
        If the beneficiary is entitled, a request of a borrower: of those with the lowest priority, the youngest. Else
        the beneficiary's own youngest request. None if no request may be preempted.
    """
    victim: W | None = None
    for work in running:
        zone = work.zone
        may_yield = zone.borrows and zone is not beneficiary if entitled else zone is beneficiary
        if may_yield and (victim is None or zone.spec.priority <= victim.zone.spec.priority):
            victim = work
    return victim


def youngest(running: Iterable[W], zone: Zone) -> W | None:
    """Returns the zone's youngest running request, or None if none is running."""
    own = [work for work in running if work.zone is zone]
    return own[-1] if own else None
