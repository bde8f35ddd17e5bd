"""Conditions in Kubernetes' usual form, and all reasons that the operator gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Status = Literal["True", "False", "Unknown"]


class Type(StrEnum):
    """The types of conditions that the operator writes."""

    ACCEPTED = "Accepted"
    """The spec is valid, and its reservation fits into the pool."""
    PROGRAMMED = "Programmed"
    """Every ready engine reports the zone at this generation, with the amounts that its spec asks for."""
    READY = "Ready"
    """Accepted and Programmed: the guarantee holds now."""
    IDENTITY_ENFORCED = "IdentityEnforced"
    """Every ready engine identifies tenants as the pool declares. Only on a ZonePool."""
    STALLED = "Stalled"
    """Nothing will happen until a user changes something. Present only then, as kstatus expects."""
    DEGRADED = "Degraded"
    """An engine is too small for what is accepted; the other engines are not affected. Present only then."""
    SELECTOR_OVERLAPS = "SelectorOverlaps"
    """Another pool of the namespace selects some of the same pods. Only on a ZonePool, and present only then."""
    SALT_NOT_SHARED = "SaltNotShared"
    """Some engines lack the pool's salt key, so hashes of prefixes differ. Present only then."""
    ADMIN_PORT_NOT_SECURED = "AdminPortNotSecured"
    """An engine refuses the operator at its admin port, or answers there without a token. Present only then."""
    PURGED = "Purged"
    """Every ready engine has carried out the requested purge. Only on a TenantZone whose purge was requested."""
    LATENCY_TARGET_MET = "LatencyTargetMet"
    """No engine misses a latency target of the zone. Only on a TenantZone with a latency target."""
    TIERS_ENFORCED = "TiersEnforced"
    """Every ready engine has the tiers that the spec declares. Present only if the spec declares tiers."""
    TIER_INEFFECTIVE = "TierIneffective"
    """A zone loads too little of what it stores in a tier. Only on a TenantZone, and present only then."""
    NOT_ENFORCED = "NotEnforced"
    """A field is set that this version does not enforce. Present only then."""
    REGISTERED = "Registered"
    """The KV-cache manager has the object as the spec declares it. Only on a KVStorage or KVCacheGroup."""
    HEALTHY = "Healthy"
    """The KV-cache manager could use the storage when it last tried. Only on a KVStorage."""
    PLACE_SHARED = "PlaceShared"
    """Another KVStorage names the same place. Only on a KVStorage, and present only then."""
    POOLS_RESOLVED = "PoolsResolved"
    """Each named pool exists, and its engines' service account is known. Only on a KVCacheGroup."""


class Reason(StrEnum):
    """The reasons of conditions that the operator gives."""

    # Accepted
    ACCEPTED = "Accepted"
    ACCEPTED_PROVISIONALLY = "AcceptedProvisionally"
    """Whether the zone fits is decided when the first engine reports its size."""
    INVALID = "Invalid"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_INVALID = "PoolInvalid"
    POOL_NOT_SERVED = "PoolNotServed"
    POOL_OVERCOMMITTED = "PoolOvercommitted"
    TENANT_CONFLICT = "TenantConflict"
    CONFIG_TOO_LARGE = "ConfigTooLarge"
    DELETING = "Deleting"
    # Programmed
    ACKNOWLEDGED = "Acknowledged"
    PENDING = "Pending"
    NOT_ACCEPTED = "NotAccepted"
    NO_ENGINES = "NoEngines"
    ENGINES_OF_ANOTHER_POOL = "EnginesOfAnotherPool"
    CONFIG_REJECTED = "ConfigRejected"
    CONFIG_UNTRUSTED = "ConfigUntrusted"
    """An engine refuses a config whose signature is invalid, or that is older than its current config."""
    CONFIG_NOT_WRITTEN = "ConfigNotWritten"
    API_SERVER_DIFFERS = "ApiServerDiffers"
    ENGINE_UNREACHABLE = "EngineUnreachable"
    ZONE_MISSING = "ZoneMissing"
    ZONE_DIFFERS = "ZoneDiffers"
    ENGINE_UNFIT = "EngineUnfit"
    """Also a reason of Degraded."""
    # Ready
    ENFORCED = "Enforced"
    # SelectorOverlaps
    PODS_SELECTED_TWICE = "PodsSelectedTwice"
    # SaltNotShared
    SECRET_NOT_MADE = "SecretNotMade"
    SALT_KEY_REFUSED = "SaltKeyRefused"
    NO_SALT_KEY = "NoSaltKey"
    SALT_KEYS_DIFFER = "SaltKeysDiffer"
    # AdminPortNotSecured, and SecretNotMade
    TOKEN_REFUSED = "TokenRefused"
    TOKENS_BROKEN = "TokensBroken"
    ADMIN_PORT_OPEN = "AdminPortOpen"
    # IdentityEnforced
    IDENTITY_INCOMPLETE = "IdentityIncomplete"
    IDENTITY_UNUSABLE = "IdentityUnusable"
    # Purged
    PURGED = "Purged"
    PURGE_PENDING = "PurgePending"
    PURGE_INVALID = "PurgeInvalid"
    # LatencyTargetMet, and NoEngines and Pending
    MET = "Met"
    NO_TRAFFIC = "NoTraffic"
    WARMING = "Warming"
    OWN_LOAD = "OwnLoad"
    OWN_PROMPTS = "OwnPrompts"
    MODEL_TOO_SLOW = "ModelTooSlow"
    NEIGHBOURS = "Neighbours"
    BLOCKS = "Blocks"
    SEATS = "Seats"
    MISSED = "Missed"
    """For a reason that only newer engines know."""
    # TiersEnforced, and Enforced, NoEngines, Pending and NotAccepted
    TIER_MISSING = "TierMissing"
    TIER_TOO_SMALL = "TierTooSmall"
    TIER_FAILING = "TierFailing"
    # TierIneffective
    LITTLE_LOADED = "LittleLoaded"
    # NotEnforced
    FIELDS_NOT_ENFORCED = "FieldsNotEnforced"
    # Registered, and Invalid and Deleting
    REGISTERED = "Registered"
    MANAGER_REFUSED = "ManagerRefused"
    MANAGER_UNREACHABLE = "ManagerUnreachable"
    """Also a reason of Healthy."""
    STORAGE_NOT_FOUND = "StorageNotFound"
    NOT_HELD = "NotHeld"
    # Healthy
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    NOT_REGISTERED = "NotRegistered"
    # PlaceShared
    PLACE_NAMED_TWICE = "PlaceNamedTwice"
    # PoolsResolved
    RESOLVED = "Resolved"
    NO_POOLS = "NoPools"
    POOLS_UNRESOLVED = "PoolsUnresolved"
    # Ready of a KVStorage or KVCacheGroup, in addition to the reasons above
    READY = "Ready"
    DISABLED = "Disabled"
    NO_STORAGE = "NoStorage"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a TenantZone or ZonePool, without the times that `render` adds."""

    type: Type
    status: Status
    reason: Reason
    message: str
    """A text without anything that changes over time, such as an age: each change is a write."""


_NAMED = 3

_STALLING = frozenset(
    {
        Reason.INVALID,
        Reason.POOL_INVALID,
        Reason.POOL_NOT_SERVED,
        Reason.POOL_OVERCOMMITTED,
        Reason.TENANT_CONFLICT,
        Reason.CONFIG_TOO_LARGE,
    }
)


def stalled(accepted: Condition) -> list[Condition]:
    """Returns the condition at which kstatus stops waiting; empty if waiting may help."""
    if accepted.reason not in _STALLING:
        return []
    return [Condition(Type.STALLED, "True", accepted.reason, accepted.message)]


def degraded(unfit: Sequence[str]) -> list[Condition]:
    """Returns the condition that names engines which are too small; empty if there are none.

    Args:
        unfit: what each such engine lacks.
    """
    if not unfit:
        return []
    return [Condition(Type.DEGRADED, "True", Reason.ENGINE_UNFIT, name_some(unfit, "; "))]


def name_some(items: Sequence[str], separator: str = ", ") -> str:
    """Returns the first few items as text, and the number of the others."""
    more = [f"and {len(items) - _NAMED} more"] if len(items) > _NAMED else []
    return separator.join([*items[:_NAMED], *more])


def not_enforced(fields: Sequence[str]) -> list[Condition]:
    """Returns the condition that names fields which are not enforced; empty if there are none."""
    if not fields:
        return []
    names = " and ".join([", ".join(fields[:-1]), fields[-1]] if len(fields) > 1 else fields)
    message = f"this version accepts but does not enforce: {names}"
    return [Condition(Type.NOT_ENFORCED, "True", Reason.FIELDS_NOT_ENFORCED, message)]


def render(
    conditions: Sequence[Condition], previous: Sequence[Mapping[str, Any]], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """Returns all conditions in the form of a status.

    Args:
        conditions: the current conditions.
        previous: the conditions in the status until now; a condition that keeps its status keeps its transition time.
        generation: the object's generation that the conditions are about.
        now: the time as RFC 3339.
    """
    before = {condition["type"]: condition for condition in previous}
    rendered = []
    for condition in conditions:
        old = before.get(condition.type)
        is_unchanged = old is not None and old["status"] == condition.status
        rendered.append(
            {
                "type": condition.type.value,
                "status": condition.status,
                "reason": condition.reason.value,
                "message": condition.message,
                "lastTransitionTime": old["lastTransitionTime"] if old is not None and is_unchanged else now,
                "observedGeneration": generation,
            }
        )
    return rendered
