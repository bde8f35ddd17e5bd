"""Pure functions that compute the engine size that a pool's plan assumes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool

_MAX_BLOCKS = 2**31 - 1
"""Largest engine size in blocks that the operator accepts from a status."""


def planned_size(pool: Pool | None, claims: Iterable[int | None], before: Mapping[str, Any]) -> int | None:
    """Returns the engine size in blocks that zones must fit into; None if unknown.

    The size is ``spec.blocksPerEngine`` if set, else the largest size that at least half of the engines reach. So false
    reports change the size only if half of the engines send them, and neither a single small engine nor small
    differences between replicas reduce the size. While no engine reports a size, the size in the pool's status applies.

    Args:
        pool: the pool; None if it does not exist.
        claims: the reported size of each ready engine; None for an engine that has never reported a size.
        before: the pool's status as this operator last computed it, without later changes by other clients.
    """
    if pool is not None and pool.blocks_per_engine is not None:
        return pool.blocks_per_engine
    if (claimed := _claimed_by_half(claims)) is not None:
        return claimed
    remembered = before.get("capacityBlocks") if pool is not None else None
    return remembered if remembered is not None and 0 < remembered <= _MAX_BLOCKS else None


def planned_seats(observations: Sequence[Observation]) -> int | None:
    """Returns the largest number of concurrent requests that at least half of the engines can run; None if unknown."""
    return _claimed_by_half(seen.report.seats for seen in observations if seen.report is not None)


def _claimed_by_half(claims: Iterable[int | None]) -> int | None:
    """Returns the largest number that at least half of the engines reach; None if no engine reports a number."""
    known = sorted(claim for claim in claims if claim)
    return known[len(known) // 2] if known else None
