"""Checks the operator's decisions on each pool and its zones, and the config for the engines, in pure functions."""

from collections.abc import Iterator

from tenantzone_cli.api import ApiError, Body
from tenantzone_cli.doctor.engine_checks import check_engines
from tenantzone_cli.doctor.facts import NOT_SERVED, Facts, is_served
from tenantzone_cli.doctor.finding import Finding, fail, name_some, ok, warn
from tenantzone_cli.names import OPERATOR, config_map_name
from tenantzone_cli.resources import Condition, Pool, Zone, unix_time
from tenantzone_cli.table import duration
from tenantzone_contract.keys.admin_token import admin_secret_name
from tenantzone_contract.keys.salt import salt_secret_name
from tenantzone_contract.zone_config.config import ConfigError, RuntimeConfig
from tenantzone_contract.zone_config.packing import files_of, unpack_config

_LARGEST_BYTES = 900_000
"""Size of a compressed config in bytes above which the operator accepts no zones; the API server accepts a bit more."""
_NEARLY = 0.8
_FRESH_SECONDS = 120.0
"""Seconds within which the operator should have handled a new object."""


def check_pools(facts: Facts) -> Iterator[Finding]:
    """Check each pool's status, the config in its ConfigMap, and its engines."""
    if isinstance(facts.pools, ApiError):
        # Other checks report missing CRDs and missing rights.
        if not facts.pools.is_not_found and not facts.pools.is_forbidden:
            yield fail("pools", f"can't be listed: {facts.pools.message}")
        return
    if not facts.pools:
        where = f"namespace {facts.namespace}" if facts.namespace is not None else "any namespace"
        yield warn("pools", f"there is no ZonePool in {where}", "create one, or name another namespace with -n")
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
        return say(subject, f"no operator has looked at it for {duration(age)}", "see whether the operator runs")
    if pool.observed_generation != pool.generation:
        seen = f"the operator has seen generation {pool.observed_generation} of {pool.generation}"
        return warn(subject, seen, "if this persists, see whether the operator runs")
    if not pool.is_("Accepted"):
        accepted = pool.condition("Accepted")
        text = accepted.message if accepted is not None else "its status has no condition Accepted"
        return fail(subject, text, f"kubectl edit zp/{pool.name} -n {pool.namespace}")
    size = f"{pool.capacity} planned blocks per engine" if pool.capacity is not None else "size not known yet"
    return ok(
        subject,
        f"{size}; {pool.status.get('zonesAccepted', 0)} zones accepted, {pool.status.get('zonesRejected', 0)} rejected",
    )


def _check_selector(pool: Pool) -> Iterator[Finding]:
    """Yields the operator's finding on other pools that select the same pods."""
    found = pool.condition("SelectorOverlaps")
    if found is not None and found.status == "True":
        advice = f"kubectl edit zp/{pool.name} -n {pool.namespace}, or the other pool: no pod has two pools' configs"
        yield warn(f"selector {pool.namespace}/{pool.name}", found.message, advice)


def _check_salt(pool: Pool) -> Iterator[Finding]:
    """Yields the operator's finding on engines that do not share the pool's salt key."""
    found = pool.condition("SaltNotShared")
    if found is not None and found.status == "True":
        advice = f"mount the Secret {salt_secret_name(pool.name)} into all engines; docs/salts.md says what it is for"
        yield warn(f"salt key {pool.namespace}/{pool.name}", found.message, advice)


def _check_admin_port(pool: Pool) -> Iterator[Finding]:
    """Yields the operator's finding on engines whose admin ports refuse the operator, or require no token."""
    found = pool.condition("AdminPortNotSecured")
    if found is not None and found.status == "True":
        advice = f"mount the Secret {admin_secret_name(pool.name)} into all engines; docs/operator.md says how"
        yield warn(f"admin port {pool.namespace}/{pool.name}", found.message, advice)


def _check_tiers(pool: Pool) -> Iterator[Finding]:
    """Yields the operator's finding on the tiers that the pool declares."""
    found = pool.condition("TiersEnforced")
    if found is None:
        return
    subject = f"tiers {pool.namespace}/{pool.name}"
    if found.status == "False":
        yield warn(subject, found.message, "docs/tiers.md says how engines get tiers, and what to do about a disk")
    elif found.status == "True":
        yield ok(subject, found.message)


def _check_config(facts: Facts, pool: Pool) -> tuple[RuntimeConfig | None, list[Finding]]:
    """Returns the pool's config if it is valid, and the findings on it."""
    subject, name = f"config {pool.namespace}/{pool.name}", config_map_name(pool.name)
    found = facts.configs[pool.key]
    if isinstance(found, ApiError):
        if found.is_not_found:
            return None, [fail(subject, f"there is no ConfigMap {name}", "see whether the operator runs")]
        return None, [] if found.is_forbidden else [warn(subject, f"can't be read: {found.message}")]
    files = files_of(found)
    try:
        config = unpack_config(files)
    except ConfigError as error:
        advice = f"kubectl -n {pool.namespace} delete cm {name}; the operator writes it again"
        return None, [fail(subject, f"can't be used, so engines keep the one before: {error}", advice)]
    said = f"generation {config.generation}, {len(config.zones)} zones, {files.size / 1024:.0f} KiB"
    said += f"{' compressed' if files.packed is not None else ''}, written {_age(facts, found)} ago"
    if files.packed is not None and files.size > _NEARLY * _LARGEST_BYTES:
        limit = f"{said}; zones that take it above {_LARGEST_BYTES // 1024} KiB are not accepted"
        return config, [warn(subject, limit, "spread the zones over more pools")]
    if pool.status.get("configHash") != config.hash:
        return config, [warn(subject, f"{said}; the pool's status names another one", "see the operator's log")]
    return config, [ok(subject, said)]


def _age(facts: Facts, body: Body) -> str:
    """Returns how long ago the operator last wrote the object, in words."""
    entries = body["metadata"].get("managedFields", [])
    times = [unix_time(entry.get("time")) for entry in entries if entry.get("manager") == OPERATOR]
    written = max((time for time in times if time is not None), default=None)
    return duration(facts.now - written) if written is not None else "an unknown time"


def _refusal(zone: Zone) -> Condition | None:
    """Returns the condition by which the operator refuses the zone; None if accepted or being deleted."""
    found = zone.condition("Accepted")
    return found if found is not None and found.status == "False" and found.reason != "Deleting" else None


def check_zones(facts: Facts) -> Iterator[Finding]:
    """Check that the operator has seen each zone's newest spec and accepts it, and that zones are ready."""
    if isinstance(facts.zones, ApiError):
        if not facts.zones.is_not_found and not facts.zones.is_forbidden:
            yield fail("zones", f"can't be listed: {facts.zones.message}")
        return
    unseen = [zone for zone in facts.zones if zone.observed_generation != zone.generation]
    late = [zone.name for zone in unseen if zone.created is None or facts.now - zone.created > _FRESH_SECONDS]
    if late:
        text = f"the operator has not seen the present generation of {name_some(late)}"
        yield warn("zones", text, "see whether the operator runs")
    without = [
        zone for zone in facts.zones if (condition := zone.condition("TiersEnforced")) and condition.status == "False"
    ]
    if without:
        text = f"{len(without)} do not have of tiers what they reserve: {name_some([zone.name for zone in without])}"
        yield warn("zones", text, f"kubectl tenantzone explain {without[0].name}")
    refused = [(zone.name, refusal.reason) for zone in facts.zones if (refusal := _refusal(zone)) is not None]
    # If another operator may serve the pool, the finding on its zones is only a warning, like the finding on the pool.
    for say, those in (
        (fail, [each for each in refused if each[1] != NOT_SERVED]),
        (warn, [each for each in refused if each[1] == NOT_SERVED]),
    ):
        if those:
            shown = name_some([f"{name} ({reason})" for name, reason in those])
            text = f"{len(those)} of {len(facts.zones)} are not accepted, so what they ask for is not enforced: {shown}"
            yield say("zones", text, f"kubectl tenantzone explain {those[0][0]}")
    unready = [zone.name for zone in facts.zones if zone.ready != "True" and _refusal(zone) is None]
    if unready:
        text = f"{len(unready)} of {len(facts.zones)} are not Ready: {name_some(unready)}"
        yield warn("zones", text, f"kubectl tenantzone explain {unready[0]}")
    elif facts.zones and not refused:
        yield ok("zones", f"all {len(facts.zones)} are Ready")
