"""Pure functions for the rows and conditions about KV-cache tiers in the statuses of zones and pools."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tenantzone_contract.quantity import shown_bytes
from tenantzone_contract.reports.tier_effect import EFFECTIVE_FROM, INEFFECTIVE_BELOW, WINDOW_SECONDS, TierWindow
from tenantzone_contract.reports.tier_summary import tier_summaries
from tenantzone_contract.reports.zone_report import TierEffectReport
from tenantzone_contract.zone_config.tiers import TIER_NAMES, PoolTiers, TierName
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.views import ZoneView
from tenantzone_operator.kube.conditions import Condition, Reason, Type, name_some
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.planning.admission import AdmissionDecision
from tenantzone_operator.planning.tier_budget import TierBudget
from tenantzone_operator.status.acknowledgement import History


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A problem with a tier of one engine. The message also says how to fix the problem."""

    reason: Reason
    message: str


def tier_rows(reports: Sequence[ZoneView]) -> list[dict[str, Any]]:
    """Returns the tier rows of a zone's status: one for each reported tier, with totals of all engines."""
    return [summary.fields() for summary in tier_summaries(reported for report in reports for reported in report.tiers)]


def pool_tier_rows(tiers: PoolTiers, budget: TierBudget) -> list[dict[str, Any]]:
    """Returns the tier rows of a pool's status: one row for each tier that the pool declares."""
    return [
        {
            "tier": name,
            "bytes": tiers.bytes_of(name),
            "reserved": budget.reserved[name],
            "allocatable": budget.allocatable(name),
        }
        for name in TIER_NAMES
        if tiers.bytes_of(name)
    ]


def zone_tiers_enforced(
    zone: Zone, decision: AdmissionDecision, observations: Sequence[Observation], history: History
) -> list[Condition]:
    """Returns a list with the condition about the tiers that a zone names; an empty list if the zone names no tiers.

    Args:
        zone: the zone as stored in the API server.
        decision: the decision on the zone, with its entry in the newest snapshot.
        observations: one observation for each ready engine of the pool.
        history: the published snapshots.
    """
    if zone.config is None or not zone.config.tiers:
        return []
    entry = decision.entry
    if not decision.accepted or entry is None:
        return [_condition("Unknown", Reason.NOT_ACCEPTED, "the engines do not get this generation")]
    names = [share.tier for share in entry.tiers]
    done = [seen for seen in observations if history.acknowledged_by(seen, entry)]
    troubles = [trouble for seen in done for trouble in _troubles_of_zone(zone.meta.name, seen, names)]
    return [_judged(troubles, observations, waiting=[seen.pod for seen in observations if seen not in done])]


def tier_ineffective(zone: Zone, observations: Sequence[Observation]) -> list[Condition]:
    """Returns a list with the condition that names tiers from which a zone loads too little of what it stores.

    The list is empty without such tiers.

    Args:
        zone: the zone as stored in the API server.
        observations: one observation for each ready engine of the pool.
    """
    found = [
        f"{seen.pod} loaded {_ratio(share.effect)} of the zone's bytes offered to tier {share.tier}"
        for seen in observations
        if zone.meta.name in seen.zones
        for share in seen.zones[zone.meta.name].tiers
        if share.effect is not None and share.effect.ineffective
    ]
    if not found:
        return []
    message = (
        f"in the last {WINDOW_SECONDS / 60:.0f} minutes or more: {name_some(found, '; ')}; a ratio below "
        f"{INEFFECTIVE_BELOW:.0%} is ineffective, until it is {EFFECTIVE_FROM:.0%}; see spec.tiers[].admission"
    )
    return [Condition(Type.TIER_INEFFECTIVE, "True", Reason.LITTLE_LOADED, message)]


def _ratio(effect: TierEffectReport) -> str:
    return f"{TierWindow(effect.offered_bytes, effect.loaded_bytes).ratio:.1%}"


def pool_tiers_enforced(pool: Pool, observations: Sequence[Observation]) -> list[Condition]:
    """Returns a list with the condition about the tiers that a pool declares; an empty list if it declares none."""
    tiers = pool.config.tiers if pool.config is not None else PoolTiers()
    names = [name for name in TIER_NAMES if tiers.bytes_of(name)]
    if not names:
        return []
    reported = [seen for seen in observations if seen.report is not None]
    troubles = [trouble for seen in reported for trouble in _troubles_of_pool(tiers, seen, names)]
    return [_judged(troubles, observations, waiting=[seen.pod for seen in observations if seen.report is None])]


def _judged(troubles: Sequence[_Trouble], observations: Sequence[Observation], waiting: Sequence[str]) -> Condition:
    if troubles:
        return _condition("False", troubles[0].reason, name_some([trouble.message for trouble in troubles], "; "))
    if not observations:
        return _condition("Unknown", Reason.NO_ENGINES, "no engine is ready")
    if waiting:
        return _condition("Unknown", Reason.PENDING, f"waiting for {name_some(waiting)}")
    engines = "1 engine has" if len(observations) == 1 else f"{len(observations)} engines have"
    return _condition("True", Reason.ENFORCED, f"{engines} the tiers, with room for all reservations")


def _troubles_of_zone(zone: str, seen: Observation, names: Sequence[TierName]) -> Iterator[_Trouble]:
    shares = {reported.tier: reported for reported in seen.zones[zone].tiers} if zone in seen.zones else {}
    for name in names:
        if name not in seen.tiers or name not in shares:
            yield _missing(seen.pod, name)
        elif awaited := shares[name].awaited_bytes:
            size = seen.tiers[name].capacity_bytes
            message = (
                f"{seen.pod} has {shown_bytes(size)} of tier {name} and lacks {shown_bytes(awaited)} that the zone "
                f"reserves; start the engine with the size in spec.tiers of the ZonePool, or lower the reservations"
            )
            yield _Trouble(Reason.TIER_TOO_SMALL, message)
        else:
            yield from _failing(seen, name)


def _troubles_of_pool(tiers: PoolTiers, seen: Observation, names: Sequence[TierName]) -> Iterator[_Trouble]:
    for name in names:
        found, declared = seen.tiers.get(name), tiers.bytes_of(name)
        if found is None:
            yield _missing(seen.pod, name)
        # An engine allocates whole chunks, so its capacity may be up to one chunk smaller than the declared bytes.
        elif found.capacity_bytes + found.chunk_bytes <= declared:
            message = (
                f"{seen.pod} has {shown_bytes(found.capacity_bytes)} of tier {name}, and spec.tiers.{name}.bytes is "
                f"{shown_bytes(declared)}; restart the engine with that size, or lower the field"
            )
            yield _Trouble(Reason.TIER_TOO_SMALL, message)
        else:
            yield from _failing(seen, name)


def _missing(pod: str, tier: TierName) -> _Trouble:
    message = (
        f"{pod} has no tier {tier}; start it with the connector that tenantzone-runtime serve --show-flags prints, or "
        f"remove the tier"
    )
    return _Trouble(Reason.TIER_MISSING, message)


def _failing(seen: Observation, tier: TierName) -> Iterator[_Trouble]:
    if problem := seen.tiers[tier].problem:
        message = f"tier {tier} of {seen.pod} fails, so requests recompute its blocks: {problem}"
        yield _Trouble(Reason.TIER_FAILING, message)


def _condition(status: Any, reason: Reason, message: str) -> Condition:
    return Condition(Type.TIERS_ENFORCED, status, reason, message)
