"""Which zones were accepted before any engine had reported its size; pure."""

from collections.abc import Collection, Iterable, Mapping

from tenantzone_operator.kube.conditions import Reason, Type
from tenantzone_operator.kube.resources import Zone
from tenantzone_operator.planning.admission import Verdict


def found_provisional(zones: Iterable[Zone]) -> frozenset[str]:
    """The names of the zones whose status says that they are, as an operator finds them when it starts."""
    return frozenset(
        zone.meta.name
        for zone in zones
        if any(
            condition.get("type") == Type.ACCEPTED and condition.get("reason") == Reason.ACCEPTED_PROVISIONALLY
            for condition in zone.status.get("conditions", [])
        )
    )


def still_provisional(before: Collection[str], verdicts: Mapping[str, Verdict]) -> frozenset[str]:
    """The names of the zones that are after a plan.

    One that was refused since stays among them: until the config is written, the engines have what it was granted.

    Args:
        before: those before the plan.
        verdicts: of the plan, by name.
    """
    return frozenset(
        name
        for name, verdict in verdicts.items()
        if verdict.reason == Reason.ACCEPTED_PROVISIONALLY or (name in before and verdict.reason != Reason.ACCEPTED)
    )
