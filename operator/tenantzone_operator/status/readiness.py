"""Pure functions for the conditions that say whether the engines enforce a zone or pool."""

from collections.abc import Sequence
from itertools import compress
from operator import not_

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Condition, Reason, Type, degraded, name_some, not_enforced, stalled
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.kube.store import Overlap
from tenantzone_operator.planning.admission import AdmissionDecision
from tenantzone_operator.planning.contradictions import seat_limit_below_reserved
from tenantzone_operator.status.acknowledgement import History, programmed
from tenantzone_operator.status.admin_port import admin_port_not_secured
from tenantzone_operator.status.identity import identity_enforced
from tenantzone_operator.status.overlaps import engines_elsewhere, selector_overlaps
from tenantzone_operator.status.salts import salt_not_shared
from tenantzone_operator.status.tiers import pool_tiers_enforced

_NO_PODS = "no ready pod matches spec.selector"


def acknowledged(decision: AdmissionDecision, observations: Sequence[Observation], history: History) -> list[bool]:
    """Returns for each engine whether the engine has the zone's current entry and reports the entry's amounts."""
    entry = decision.entry if decision.accepted else None
    return [
        entry is not None and history.acknowledged_by(seen, entry) and not history.difference(seen, entry)
        for seen in observations
    ]


def applied(decision: AdmissionDecision, observations: Sequence[Observation], history: History) -> list[bool]:
    """Returns for each engine whether the engine has the zone's current entry, even if its reported amounts differ."""
    entry = decision.entry if decision.accepted else None
    return [entry is not None and history.acknowledged_by(seen, entry) for seen in observations]


def zone_conditions(
    zone: Zone,
    decision: AdmissionDecision,
    observations: Sequence[Observation],
    acknowledged: Sequence[bool],
    history: History,
    not_written: str,
    elsewhere: str,
) -> list[Condition]:
    """Returns the conditions of a zone; for the arguments, see ``status.zone_status`` and `acknowledged`."""
    accepted = Condition(Type.ACCEPTED, "True" if decision.accepted else "False", decision.reason, decision.message)
    unfit = [bool(history.lacks(seen, zone.meta.name)) for seen in observations]
    if decision.accepted and observations and all(unfit):
        contradicts = history.contradiction(observations[0], zone.meta.name)
        lack = _lack(observations[0], history, zone.meta.name)
        message = lack if contradicts else f"no engine is large enough: {lack}"
        engines = Condition(Type.PROGRAMMED, "False", Reason.ENGINE_UNFIT, message)
    elif decision.accepted:
        engines = programmed(
            list(compress(observations, map(not_, unfit))),
            list(compress(acknowledged, map(not_, unfit))),
            f"no ready pod matches the selector of ZonePool {zone.pool}; the zone is enforced when one does",
            not_written,
            f"ZonePool {zone.pool} has no engines. {elsewhere}" if elsewhere else "",
        )
        if engines.reason == Reason.PENDING:
            engines = _difference(decision, observations, history) or engines
    else:
        engines = Condition(Type.PROGRAMMED, "False", Reason.NOT_ACCEPTED, "the engines do not get this generation")
    lacking = [_lack(seen, history, zone.meta.name) for seen in compress(observations, unfit) if decision.accepted]
    lacking += _lack_of_seats(observations, zone.meta.name, decision.entry)
    return [accepted, engines, _ready(accepted, engines), *stalled(accepted), *degraded(lacking)]


def _lack(seen: Observation, history: History, zone: str) -> str:
    """Returns a text that says how many blocks an engine lacks for a zone, or which of the zone's amounts conflict."""
    assert seen.report is not None, "the engine lacks blocks, so its size is known"
    if contradicts := history.contradiction(seen, zone):
        return f"{seen.pod}: {contradicts}"
    return (
        f"{seen.pod} has {seen.report.capacity_blocks} blocks and lacks the {history.lacks(seen, zone)} that the zone "
        "reserves"
    )


def _lack_of_seats(observations: Sequence[Observation], zone: str, entry: ZoneConfig | None) -> list[str]:
    """Returns one text for each engine that lacks reserved seats of a zone, with the number of missing seats."""
    lacking = []
    for seen in observations:
        found = seen.zones.get(zone)
        if seen.report is None or found is None or not found.awaited_seats:
            continue
        contradicts = seat_limit_below_reserved(entry, seen.report.seats) if entry is not None else ""
        too_few = f" has {seen.report.seats} seats and lacks the {found.awaited_seats} that the zone reserves"
        lacking.append(seen.pod + (f": {contradicts}" if contradicts else too_few))
    return lacking


def _difference(decision: AdmissionDecision, observations: Sequence[Observation], history: History) -> Condition | None:
    """Returns the condition about the first engine whose report of the zone differs from the config, or None."""
    entry = decision.entry
    for seen in observations:
        if entry is not None and history.acknowledged_by(seen, entry) and (found := history.difference(seen, entry)):
            reason = Reason.ZONE_DIFFERS if entry.name in seen.zones else Reason.ZONE_MISSING
            return Condition(Type.PROGRAMMED, "False", reason, f"{seen.pod} has the config but {found}")
    return None


def pool_conditions(
    pool: Pool,
    left_out: str,
    observations: Sequence[Observation],
    acknowledged: Sequence[bool],
    history: History,
    not_written: str,
    salt_not_made: str,
    token_not_made: str,
    unwatched: Sequence[str] = (),
    overlaps: Sequence[Overlap] = (),
) -> list[Condition]:
    """Returns the conditions of a pool.

    Args:
        pool: the pool as stored in the API server.
        left_out: why the newest snapshot does not contain the pool's spec; empty if it does.
        observations: one observation for each ready engine of the pool.
        acknowledged: for each engine, whether it has the newest snapshot.
        history: the published snapshots.
        not_written: why the newest snapshot could not be published; empty if it was published.
        salt_not_made: why the Secret with the pool's salt key can't be created; empty if nothing prevents it.
        token_not_made: why the Secret with the pool's admin token can't be created; empty if nothing prevents it.
        unwatched: names of user-provided Secrets that the pool's pods mount but the operator can't watch.
        overlaps: the overlaps with other pools that select the same pods.
    """
    if pool.config is None:
        accepted = Condition(Type.ACCEPTED, "False", Reason.INVALID, pool.invalid)
    elif left_out:
        accepted = Condition(Type.ACCEPTED, "False", Reason.CONFIG_TOO_LARGE, left_out)
    else:
        accepted = Condition(Type.ACCEPTED, "True", Reason.ACCEPTED, "valid")
    # An engine that is too small applies the reservations that fit, and acknowledges the config like other engines.
    engines = programmed(
        observations, acknowledged, _NO_PODS, not_written, "" if observations else engines_elsewhere(overlaps)
    )
    unfit = [why for seen in observations if (why := _unfit(seen, history))]
    return [
        accepted,
        engines,
        _ready(accepted, engines),
        *([identity_enforced(pool.config.identity, observations, unwatched)] if pool.config is not None else []),
        *stalled(accepted),
        *degraded(unfit),
        *selector_overlaps(overlaps),
        *salt_not_shared(pool.meta.name, observations, salt_not_made),
        *admin_port_not_secured(pool.meta.name, observations, token_not_made),
        *pool_tiers_enforced(pool, observations),
        *not_enforced(pool.not_enforced),
    ]


def _unfit(seen: Observation, history: History) -> str:
    """Returns a text about the reservations that an engine does not grant; empty if the engine grants all of them."""
    if seen.report is None:
        return ""
    lacking = history.lacking(seen)
    contradicting = [zone for zone in lacking if history.contradiction(seen, zone)]
    if lacks := sum(blocks for zone, blocks in lacking.items() if zone not in contradicting):
        return f"{seen.pod} has {seen.report.capacity_blocks} blocks and lacks {lacks} of the zones' reserved blocks"
    if contradicting:
        return f"{seen.pod}: limit is below reserved in {name_some(contradicting)}"
    return ""


def leaving_pool_conditions() -> list[Condition]:
    """Returns the conditions of a pool whose deletion waits for a finalizer."""
    message = "the pool is being deleted, so the operator no longer handles its zones; a finalizer delays the deletion"
    return _without_config(Condition(Type.ACCEPTED, "False", Reason.DELETING, message), "any more")


def not_served_conditions(why: str) -> list[Condition]:
    """Returns the conditions of a pool that the operator lacks rights for.

    Args:
        why: which right is missing.
    """
    accepted = Condition(Type.ACCEPTED, "False", Reason.POOL_NOT_SERVED, f"this pool is not served: {why}")
    return _without_config(accepted, "from this operator")


def _without_config(accepted: Condition, how: str) -> list[Condition]:
    engines = Condition(Type.PROGRAMMED, "False", Reason.NOT_ACCEPTED, f"the engines get no config {how}")
    return [accepted, engines, _ready(accepted, engines), *stalled(accepted)]


def _ready(accepted: Condition, engines: Condition) -> Condition:
    if accepted.status != "True":
        return Condition(Type.READY, "False", Reason.NOT_ACCEPTED, accepted.message)
    if engines.status != "True":
        return Condition(Type.READY, engines.status, engines.reason, engines.message)
    return Condition(Type.READY, "True", Reason.ENFORCED, f"enforced; {engines.message}")
