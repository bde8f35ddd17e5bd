"""Pure functions that check the operator's decisions on pools and zones, and the pools' configs."""

from collections.abc import Iterator

from tenantzone_cli.api import ApiError
from tenantzone_cli.doctor.engine_checks import check_engines
from tenantzone_cli.doctor.facts import NOT_SERVED, Facts, is_served
from tenantzone_cli.doctor.finding import Finding, fail, name_some, ok, warn
from tenantzone_cli.resources import Condition, Pool, Zone, unix_time
from tenantzone_cli.table import duration
from tenantzone_contract.keys.admin_token import admin_secret_name
from tenantzone_contract.keys.salt import salt_secret_name
from tenantzone_contract.kube_names import OPERATOR, config_map_name
from tenantzone_contract.zone_config.config import ConfigError, RuntimeConfig
from tenantzone_contract.zone_config.packing import files_of, unpack_config
from tenantzone_contract.zone_config.specs import Body

_LARGEST_BYTES = 900_000
"""Size of a compressed config in bytes above which the operator accepts no new zones. The API server accepts more."""
_NEARLY = 0.8
_FRESH_SECONDS = 120.0
"""Seconds within which the operator should handle a new object."""


def check_pools(facts: Facts) -> Iterator[Finding]:
    """Check each pool's status, the config in its ConfigMap, and its engines."""
    if isinstance(facts.pools, ApiError):
        # Skip missing CRDs and missing rights, because other checks report them.
        if not facts.pools.is_not_found and not facts.pools.is_forbidden:
            yield fail("pools", f"can't be listed: {facts.pools.message}")
        return
    if not facts.pools:
        where = f"namespace {facts.namespace}" if facts.namespace is not None else "any namespace"
        yield warn("pools", f"there is no ZonePool in {where}", "create one, or set another namespace with -n")
    for pool in facts.pools:
        if not is_served(pool):
            yield _not_served(pool)
            continue
        yield _check_status(facts, pool)
        yield from _check_selector(pool)
        yield from _check_salt(pool)
        yield from _check_admin_port(pool)
        yield from _check_tiers(pool)
        config, found = _check_config(facts, pool)
        yield from found
        yield from check_engines(facts, pool, config.hash if config is not None else pool.status.get("configHash"))


def _not_served(pool: Pool) -> Finding:
    accepted = pool.condition("Accepted")
    text = accepted.message if accepted is not None else ""
    return warn(f"pool {pool.namespace}/{pool.name}", text, "delete it, or leave it to another operator")


def _check_status(facts: Facts, pool: Pool) -> Finding:
    subject = f"pool {pool.namespace}/{pool.name}"
    age = facts.now - pool.created if pool.created is not None else 0.0
    if pool.observed_generation is None:
        say = fail if age > _FRESH_SECONDS else warn
        return say(subject, f"no operator has handled the pool for {duration(age)}", "check that the operator runs")
    if pool.observed_generation != pool.generation:
        seen = f"the operator has seen generation {pool.observed_generation} of {pool.generation}"
        return warn(subject, seen, "if this persists, check that the operator runs")
    if not pool.is_("Accepted"):
        accepted = pool.condition("Accepted")
        text = accepted.message if accepted is not None else "the pool's status has no condition Accepted"
        return fail(subject, text, f"kubectl edit zp/{pool.name} -n {pool.namespace}")
    size = f"{pool.capacity} planned blocks per engine" if pool.capacity is not None else "size not yet known"
    return ok(
        subject,
        f"{size}; {pool.status.get('zonesAccepted', 0)} zones accepted, {pool.status.get('zonesRejected', 0)} rejected",
    )


def _check_selector(pool: Pool) -> Iterator[Finding]:
    """Reports the condition about other pools that select the same pods."""
    found = pool.condition("SelectorOverlaps")
    if found is not None and found.status == "True":
        advice = (
            f"kubectl edit zp/{pool.name} -n {pool.namespace}, or the other pool; a pod gets only one pool's config"
        )
        yield warn(f"selector {pool.namespace}/{pool.name}", found.message, advice)


def _check_salt(pool: Pool) -> Iterator[Finding]:
    """Reports the condition about engines that do not share the pool's salt key."""
    found = pool.condition("SaltNotShared")
    if found is not None and found.status == "True":
        advice = f"mount the Secret {salt_secret_name(pool.name)} into all engines; see docs/salts.md for its purpose"
        yield warn(f"salt key {pool.namespace}/{pool.name}", found.message, advice)


def _check_admin_port(pool: Pool) -> Iterator[Finding]:
    """Reports the condition about engines whose admin ports refuse the operator, or require no token."""
    found = pool.condition("AdminPortNotSecured")
    if found is not None and found.status == "True":
        advice = f"mount the Secret {admin_secret_name(pool.name)} into all engines; see docs/operator.md"
        yield warn(f"admin port {pool.namespace}/{pool.name}", found.message, advice)


def _check_tiers(pool: Pool) -> Iterator[Finding]:
    """Reports the condition about the tiers that the pool declares."""
    found = pool.condition("TiersEnforced")
    if found is None:
        return
    subject = f"tiers {pool.namespace}/{pool.name}"
    if found.status == "False":
        yield warn(subject, found.message, "see docs/tiers.md for how engines get tiers, and for problems with disks")
    elif found.status == "True":
        yield ok(subject, found.message)


def _check_config(facts: Facts, pool: Pool) -> tuple[RuntimeConfig | None, list[Finding]]:
    """Returns the pool's config and the findings about it. The config is None if it is missing or invalid."""
    subject, name = f"config {pool.namespace}/{pool.name}", config_map_name(pool.name)
    found = facts.configs[pool.key]
    if isinstance(found, ApiError):
        if found.is_not_found:
            return None, [fail(subject, f"there is no ConfigMap {name}", "check that the operator runs")]
        return None, [] if found.is_forbidden else [warn(subject, f"can't be read: {found.message}")]
    files = files_of(found)
    try:
        config = unpack_config(files)
    except ConfigError as error:
        advice = f"kubectl -n {pool.namespace} delete cm {name}; the operator recreates it"
        return None, [fail(subject, f"is invalid, so engines keep their previous config: {error}", advice)]
    said = f"generation {config.generation}, {len(config.zones)} zones, {files.size / 1024:.0f} KiB"
    said += f"{' compressed' if files.packed is not None else ''}, written {_age(facts, found)} ago"
    if files.packed is not None and files.size > _NEARLY * _LARGEST_BYTES:
        limit = f"{said}; zones are refused if the config would exceed {_LARGEST_BYTES // 1024} KiB with them"
        return config, [warn(subject, limit, "distribute the zones over more pools")]
    if pool.status.get("configHash") != config.hash:
        return config, [
            warn(subject, f"{said}; the pool's status has the hash of another config", "see the operator's log")
        ]
    return config, [ok(subject, said)]


def _age(facts: Facts, body: Body) -> str:
    """Returns the time since the operator's last write of the object, as a text."""
    entries = body["metadata"].get("managedFields", [])
    times = [unix_time(entry.get("time")) for entry in entries if entry.get("manager") == OPERATOR]
    written = max((time for time in times if time is not None), default=None)
    return duration(facts.now - written) if written is not None else "an unknown time"


def _refusal(zone: Zone) -> Condition | None:
    """Returns the condition Accepted if the operator refuses the zone.

    Returns None if the operator does not refuse the zone, or if the zone is being deleted.
    """
    found = zone.condition("Accepted")
    return found if found is not None and found.status == "False" and found.reason != "Deleting" else None


def check_zones(facts: Facts) -> Iterator[Finding]:
    """Check that the operator has handled each zone's newest spec and accepts it, and that all zones are ready."""
    if isinstance(facts.zones, ApiError):
        if not facts.zones.is_not_found and not facts.zones.is_forbidden:
            yield fail("zones", f"can't be listed: {facts.zones.message}")
        return
    unseen = [zone for zone in facts.zones if zone.observed_generation != zone.generation]
    late = [zone.name for zone in unseen if zone.created is None or facts.now - zone.created > _FRESH_SECONDS]
    if late:
        text = f"the operator has not seen the current generation of {name_some(late)}"
        yield warn("zones", text, "check that the operator runs")
    without = [
        zone for zone in facts.zones if (condition := zone.condition("TiersEnforced")) and condition.status == "False"
    ]
    if without:
        text = f"{len(without)} do not have their reservations in tiers: {name_some([zone.name for zone in without])}"
        yield warn("zones", text, f"kubectl tenantzone explain {without[0].name}")
    refused = [(zone.name, refusal.reason) for zone in facts.zones if (refusal := _refusal(zone)) is not None]
    # Zones with PoolNotServed only cause a warning, because another operator may serve their pool.
    for say, those in (
        (fail, [each for each in refused if each[1] != NOT_SERVED]),
        (warn, [each for each in refused if each[1] == NOT_SERVED]),
    ):
        if those:
            shown = name_some([f"{name} ({reason})" for name, reason in those])
            text = f"{len(those)} of {len(facts.zones)} are not accepted, so they are not enforced: {shown}"
            yield say("zones", text, f"kubectl tenantzone explain {those[0][0]}")
    unready = [zone.name for zone in facts.zones if zone.ready != "True" and _refusal(zone) is None]
    if unready:
        text = f"{len(unready)} of {len(facts.zones)} are not Ready: {name_some(unready)}"
        yield warn("zones", text, f"kubectl tenantzone explain {unready[0]}")
    elif facts.zones and not refused:
        yield ok("zones", f"all {len(facts.zones)} are Ready")
