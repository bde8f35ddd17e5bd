"""Computes the size of the engines that a pool is planned for; pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool

_MAX_BLOCKS = 2**31 - 1
"""The most blocks of any engine that a spec may name."""


def planned_size(pool: Pool | None, claims: Iterable[int | None], before: Mapping[str, Any]) -> int | None:
    """Returns the number of blocks of the engines that zones must fit into; None if unknown.

    That is ``spec.blocksPerEngine`` if set, else the largest size that at least half of the engines reach. So a false
    size takes half of the engines, and neither a pod that reports a small size nor replicas that differ by a few blocks
    reduce it. While no engine reports a size, the remembered one counts.

    Args:
        pool: None if it does not exist.
        claims: the size that each ready engine reports; None if it never did.
        before: the pool's status as this operator wrote it last, whatever others wrote since.
    """
    if pool is not None and pool.blocks_per_engine is not None:
        return pool.blocks_per_engine
    if (claimed := _claimed_by_half(claims)) is not None:
        return claimed
    remembered = before.get("capacityBlocks") if pool is not None else None
    return remembered if remembered is not None and 0 < remembered <= _MAX_BLOCKS else None


def planned_seats(observations: Sequence[Observation]) -> int | None:
    """Returns the number of requests that a pool's engines run at once, as in `planned_size`; None if unknown."""
    return _claimed_by_half(seen.report.seats for seen in observations if seen.report is not None)


def _claimed_by_half(claims: Iterable[int | None]) -> int | None:
    """Returns the largest number that at least half of the engines reach; None if no engine reports one."""
    known = sorted(claim for claim in claims if claim)
    return known[len(known) // 2] if known else None
