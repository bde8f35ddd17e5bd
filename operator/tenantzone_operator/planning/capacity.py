"""The size of the engines that a pool is planned for; pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool

_MAX_BLOCKS = 2**31 - 1
"""Of any engine that a spec may name."""


def planned_size(pool: Pool | None, claims: Iterable[int | None], before: Mapping[str, Any]) -> int | None:
    """The number of blocks of the engines that zones must fit into; None if nothing is known.

    What ``spec.blocksPerEngine`` says; else the most that at least half of the engines have. So it takes half of them
    to say what is not so, and a pod that says little, or replicas whose sizes differ by a few blocks, take nothing from
    anybody. While no engine says anything, what is remembered counts.

    Args:
        pool: None if it does not exist.
        claims: what each ready engine says; None: it never did.
        before: the pool's status as this operator made it last, whatever others wrote since.
    """
    if pool is not None and pool.blocks_per_engine is not None:
        return pool.blocks_per_engine
    if (claimed := _claimed_by_half(claims)) is not None:
        return claimed
    remembered = before.get("capacityBlocks") if pool is not None else None
    return remembered if remembered is not None and 0 < remembered <= _MAX_BLOCKS else None


def planned_seats(observations: Sequence[Observation]) -> int | None:
    """The number of requests that the engines of a pool run at once, by the rule of `planned_size`; None: unknown."""
    return _claimed_by_half(seen.report.seats for seen in observations if seen.report is not None)


def _claimed_by_half(claims: Iterable[int | None]) -> int | None:
    """The most that at least half of the engines have; None if no engine reports a number."""
    known = sorted(claim for claim in claims if claim)
    return known[len(known) // 2] if known else None
