"""Tracks zones that were accepted before any engine had reported its size, in pure functions."""

from collections.abc import Collection, Mapping

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.planning.admission import AdmissionDecision
from tenantzone_operator.planning.contradictions import depends_on_size


def found_provisional(pool: Pool | None, in_force: RuntimeConfig | None) -> frozenset[str]:
    """Returns the names of the zones with provisional grants when the operator starts.

    Args:
        pool: the pool, whose status contains a size if any size was ever known; None if it does not exist. Without a
            status, for example after restoring a backup, all zones keep their grants in the config.
        in_force: the snapshot that was published last.
    """
    if pool is None or in_force is None or "configGeneration" not in pool.status or "capacityBlocks" in pool.status:
        return frozenset()
    return frozenset(entry.name for entry in in_force.zones if depends_on_size(entry))


def still_provisional(before: Collection[str], decisions: Mapping[str, AdmissionDecision]) -> frozenset[str]:
    """Returns the names of the zones with provisional grants after a plan.

    A zone that the plan refuses stays among them, because engines have its grant until the config is written.

    Args:
        before: the names before the plan.
        decisions: the plan's decisions, by name.
    """
    return frozenset(
        name
        for name, decision in decisions.items()
        if decision.reason == Reason.ACCEPTED_PROVISIONALLY or (name in before and decision.reason != Reason.ACCEPTED)
    )
