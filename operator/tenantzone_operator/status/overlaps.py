"""Pure functions for conditions about pods that several pools select."""

from collections.abc import Sequence

from tenantzone_operator.kube.conditions import Condition, Reason, Type, name_some
from tenantzone_operator.kube.store import Overlap


def selector_overlaps(overlaps: Sequence[Overlap]) -> list[Condition]:
    """Returns a list with the condition about other pools that select the same pods; empty if no other pool does."""
    if not overlaps:
        return []
    message = f"{name_some([_shared(each) for each in overlaps], '; ')}; change spec.selector of one of the pools"
    return [Condition(Type.SELECTOR_OVERLAPS, "True", Reason.PODS_SELECTED_TWICE, message)]


def engines_elsewhere(overlaps: Sequence[Overlap]) -> str:
    """Returns a text that names other pools that own pods selected by this pool; empty if there are none."""
    return name_some([_shared(each) for each in overlaps if each.has_pods], "; ")


def _shared(overlap: Overlap) -> str:
    pods, other = name_some(overlap.pods), overlap.pool
    if overlap.has_pods:
        return f"{pods}: selected by this pool and by ZonePool {other}, which is older and owns them"
    return f"{pods}: selected by this pool and by ZonePool {other}, which is younger and does not own them"
