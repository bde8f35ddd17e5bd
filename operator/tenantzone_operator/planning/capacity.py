"""Computes the engine size that a pool's plan assumes, in pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool

_MAX_BLOCKS = 2**31 - 1
"""Maximum number of blocks of an engine."""


def planned_size(pool: Pool | None, claims: Iterable[int | None], before: Mapping[str, Any]) -> int | None:
    """Returns the engine size in blocks that zones must fit into; None if unknown.

    The size is ``spec.blocksPerEngine`` if set, else the largest size that at least half of the engines reach. So only
    half of the engines together can report a false size, and neither a single small engine nor replicas that differ
    by a few blocks reduce the size. While no engine reports a size, the size in the pool's status applies.

    Args:
        pool: the pool; None if it does not exist.
        claims: for each ready engine its reported size; None if it has never reported a size.
        before: the pool's last status from this operator, even if others have changed it since.
    """
    if pool is not None and pool.blocks_per_engine is not None:
        return pool.blocks_per_engine
    if (claimed := _claimed_by_half(claims)) is not None:
        return claimed
    remembered = before.get("capacityBlocks") if pool is not None else None
    return remembered if remembered is not None and 0 < remembered <= _MAX_BLOCKS else None


def planned_seats(observations: Sequence[Observation]) -> int | None:
    """Returns the maximum number of requests that an engine runs at once, as in `planned_size`; None if unknown."""
    return _claimed_by_half(seen.report.seats for seen in observations if seen.report is not None)


def _claimed_by_half(claims: Iterable[int | None]) -> int | None:
    """Returns the largest number that at least half of the engines reach; None if no engine reports a number."""
    known = sorted(claim for claim in claims if claim)
    return known[len(known) // 2] if known else None
