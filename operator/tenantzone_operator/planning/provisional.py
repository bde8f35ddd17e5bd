"""Pure functions that track zones that were accepted before any engine had reported its size."""

from collections.abc import Collection, Mapping

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.planning.admission import AdmissionDecision
from tenantzone_operator.planning.contradictions import depends_on_size


def found_provisional(pool: Pool | None, in_force: RuntimeConfig | None) -> frozenset[str]:
    """Returns the names of the zones with provisional grants when the operator starts.

    Args:
        pool: the pool; None if it does not exist. If a size was ever known, the pool's status contains it. Without a
            status, for example after a restored backup, no grant counts as provisional.
        in_force: the last published snapshot.
    """
    if pool is None or in_force is None or "configGeneration" not in pool.status or "capacityBlocks" in pool.status:
        return frozenset()
    return frozenset(entry.name for entry in in_force.zones if depends_on_size(entry))


def still_provisional(before: Collection[str], decisions: Mapping[str, AdmissionDecision]) -> frozenset[str]:
    """Returns the names of the zones with provisional grants after a plan.

    If the plan refuses a zone with a provisional grant, the zone keeps the grant until a config without it is written.

    Args:
        before: the names of zones with provisional grants before the plan.
        decisions: the plan's decisions, by zone name.
    """
    return frozenset(
        name
        for name, decision in decisions.items()
        if decision.reason == Reason.ACCEPTED_PROVISIONALLY or (name in before and decision.reason != Reason.ACCEPTED)
    )
