"""Preemption: which running request is preempted so that its blocks can be used.

A request that may not take blocks is either entitled to them (its zone is within its reservation): then zones that use
the reservation are preempted, lowest priority first, and their youngest request first. Or it is not: then only its own
zone may be preempted (S3, soft compaction). A zone within its own reservation is never preempted for another.

S3 demotes the zone's least active session. In vLLM every running request makes progress in each step until the step's
token budget is spent, the oldest first: so the least active one is the youngest. If clients give their requests
priorities, the engine's order of seniority uses those first.
"""

from collections.abc import Iterable

from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.zone import Zone


def choose_victim(running: Iterable[W], beneficiary: Zone, *, entitled: bool) -> W | None:
    """Choose the running request to preempt next.

    Args:
        running: most senior first.
        beneficiary: the zone that needs blocks.
        entitled: whether it is within its reservation with them.

    Returns:
        A borrower's request (lowest priority, then youngest) if the beneficiary is entitled, else the beneficiary's own
        youngest; None if none may be preempted.
    """
    victim: W | None = None
    for work in running:
        zone = work.zone
        may_yield = zone.borrows and zone is not beneficiary if entitled else zone is beneficiary
        if may_yield and (victim is None or zone.spec.priority <= victim.zone.spec.priority):
            victim = work
    return victim


def youngest(running: Iterable[W], zone: Zone) -> W | None:
    """The zone's youngest running request; None if none runs."""
    own = [work for work in running if work.zone is zone]
    return own[-1] if own else None
