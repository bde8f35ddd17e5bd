"""Defines the types and reasons of conditions, and renders conditions as Kubernetes does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Status = Literal["True", "False", "Unknown"]


class Type(StrEnum):
    """Types of conditions that the operator writes."""

    ACCEPTED = "Accepted"
    """The spec is valid, and its reservation fits into the pool."""
    PROGRAMMED = "Programmed"
    """Every ready engine reports the zone's current generation, with the amounts in the zone's spec."""
    READY = "Ready"
    """The object is accepted and programmed, so the engines enforce it now."""
    IDENTITY_ENFORCED = "IdentityEnforced"
    """Every ready engine identifies tenants as the pool declares. Only on a ZonePool."""
    STALLED = "Stalled"
    """The operator waits for a user to change something. Present only in that case, as kstatus expects."""
    DEGRADED = "Degraded"
    """An engine is too small for the accepted reservations. Other engines are not affected. Present only if True."""
    SELECTOR_OVERLAPS = "SelectorOverlaps"
    """Another pool of the namespace selects some of the same pods. Only on a ZonePool, and present only if True."""
    SALT_NOT_SHARED = "SaltNotShared"
    """Some engines lack the pool's salt key, so prefix hashes differ between engines. Present only if True."""
    ADMIN_PORT_NOT_SECURED = "AdminPortNotSecured"
    """An engine's admin port refuses the operator's token, or answers without a token. Present only if True."""
    PURGED = "Purged"
    """Every ready engine has carried out the requested purge. Only on a TenantZone whose purge was requested."""
    LATENCY_TARGET_MET = "LatencyTargetMet"
    """No engine misses a latency target of the zone. Only on a TenantZone with a latency target."""
    TIERS_ENFORCED = "TiersEnforced"
    """Every ready engine has the tiers that the spec declares. Present only if the spec declares tiers."""
    TIER_INEFFECTIVE = "TierIneffective"
    """The zone loads too few of the blocks that it stores in a tier. Only on a TenantZone; present only if True."""
    NOT_ENFORCED = "NotEnforced"
    """A field is set that this version does not enforce. Present only if True."""
    REGISTERED = "Registered"
    """The KV-cache manager has registered the current spec. Only on a KVStorage or KVCacheGroup."""
    HEALTHY = "Healthy"
    """The KV-cache manager's last attempt to use the storage succeeded. Only on a KVStorage."""
    PLACE_SHARED = "PlaceShared"
    """Another KVStorage names the same location. Only on a KVStorage, and present only if True."""
    POOLS_RESOLVED = "PoolsResolved"
    """Each named pool exists, and its engines' service account is known. Only on a KVCacheGroup."""


class Reason(StrEnum):
    """Reasons of conditions that the operator writes."""

    # Reasons of Accepted
    ACCEPTED = "Accepted"
    ACCEPTED_PROVISIONALLY = "AcceptedProvisionally"
    """No engine has reported its size yet. When one does, the operator decides whether the zone fits."""
    INVALID = "Invalid"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_INVALID = "PoolInvalid"
    POOL_NOT_SERVED = "PoolNotServed"
    POOL_OVERCOMMITTED = "PoolOvercommitted"
    TENANT_CONFLICT = "TenantConflict"
    CONFIG_TOO_LARGE = "ConfigTooLarge"
    DELETING = "Deleting"
    # Reasons of Programmed
    ACKNOWLEDGED = "Acknowledged"
    PENDING = "Pending"
    NOT_ACCEPTED = "NotAccepted"
    NO_ENGINES = "NoEngines"
    ENGINES_OF_ANOTHER_POOL = "EnginesOfAnotherPool"
    CONFIG_REJECTED = "ConfigRejected"
    CONFIG_UNTRUSTED = "ConfigUntrusted"
    """An engine refuses a config because the signature is invalid, or because the engine's current config is newer."""
    CONFIG_NOT_WRITTEN = "ConfigNotWritten"
    API_SERVER_DIFFERS = "ApiServerDiffers"
    ENGINE_UNREACHABLE = "EngineUnreachable"
    ZONE_MISSING = "ZoneMissing"
    ZONE_DIFFERS = "ZoneDiffers"
    ENGINE_UNFIT = "EngineUnfit"
    """An engine is too small for the zone's reservation. Also a reason of Degraded."""
    # Reasons of Ready
    ENFORCED = "Enforced"
    # Reasons of SelectorOverlaps
    PODS_SELECTED_TWICE = "PodsSelectedTwice"
    # Reasons of SaltNotShared
    SECRET_NOT_MADE = "SecretNotMade"
    SALT_KEY_REFUSED = "SaltKeyRefused"
    NO_SALT_KEY = "NoSaltKey"
    SALT_KEYS_DIFFER = "SaltKeysDiffer"
    # Reasons of AdminPortNotSecured, which also uses SecretNotMade
    TOKEN_REFUSED = "TokenRefused"
    TOKENS_BROKEN = "TokensBroken"
    ADMIN_PORT_OPEN = "AdminPortOpen"
    # Reasons of IdentityEnforced
    IDENTITY_INCOMPLETE = "IdentityIncomplete"
    IDENTITY_UNUSABLE = "IdentityUnusable"
    # Reasons of Purged
    PURGED = "Purged"
    PURGE_PENDING = "PurgePending"
    PURGE_INVALID = "PurgeInvalid"
    # Reasons of LatencyTargetMet, which also uses NoEngines and Pending
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
    """The target is missed for a reason that this version of the operator does not know."""
    # Reasons of TiersEnforced, which also uses Enforced, NoEngines, Pending and NotAccepted
    TIER_MISSING = "TierMissing"
    TIER_TOO_SMALL = "TierTooSmall"
    TIER_FAILING = "TierFailing"
    # Reasons of TierIneffective
    LITTLE_LOADED = "LittleLoaded"
    # Reasons of NotEnforced
    FIELDS_NOT_ENFORCED = "FieldsNotEnforced"
    # Reasons of Registered, which also uses Invalid and Deleting
    REGISTERED = "Registered"
    MANAGER_REFUSED = "ManagerRefused"
    MANAGER_UNREACHABLE = "ManagerUnreachable"
    """The KV-cache manager does not answer. Also a reason of Healthy."""
    STORAGE_NOT_FOUND = "StorageNotFound"
    NOT_HELD = "NotHeld"
    # Reasons of Healthy
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    NOT_REGISTERED = "NotRegistered"
    # Reasons of PlaceShared
    PLACE_NAMED_TWICE = "PlaceNamedTwice"
    # Reasons of PoolsResolved
    RESOLVED = "Resolved"
    NO_POOLS = "NoPools"
    POOLS_UNRESOLVED = "PoolsUnresolved"
    # Reasons of Ready of a KVStorage or KVCacheGroup, in addition to the reasons above
    READY = "Ready"
    DISABLED = "Disabled"
    NO_STORAGE = "NoStorage"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without the times that `render` adds."""

    type: Type
    status: Status
    reason: Reason
    message: str
    """Text for people, without values that change over time, such as ages, because each change causes a write."""


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
    """Returns a list with the condition that makes kstatus stop waiting; an empty list if waiting may help."""
    if accepted.reason not in _STALLING:
        return []
    return [Condition(Type.STALLED, "True", accepted.reason, accepted.message)]


def degraded(unfit: Sequence[str]) -> list[Condition]:
    """Returns a list with the condition that names engines that are too small; an empty list without such engines.

    Args:
        unfit: one text for each such engine, with the engine's name and the blocks that the engine lacks.
    """
    if not unfit:
        return []
    return [Condition(Type.DEGRADED, "True", Reason.ENGINE_UNFIT, name_some(unfit, "; "))]


def name_some(items: Sequence[str], separator: str = ", ") -> str:
    """Returns the first few items and the number of the remaining items, as a text."""
    more = [f"and {len(items) - _NAMED} more"] if len(items) > _NAMED else []
    return separator.join([*items[:_NAMED], *more])


def not_enforced(fields: Sequence[str]) -> list[Condition]:
    """Returns a list with the condition that names fields that are not enforced; an empty list without such fields."""
    if not fields:
        return []
    names = " and ".join([", ".join(fields[:-1]), fields[-1]] if len(fields) > 1 else fields)
    message = f"this version accepts but does not enforce: {names}"
    return [Condition(Type.NOT_ENFORCED, "True", Reason.FIELDS_NOT_ENFORCED, message)]


def render(
    conditions: Sequence[Condition], previous: Sequence[Mapping[str, Any]], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """Returns the conditions as JSON for a status.

    Args:
        conditions: the current conditions.
        previous: the conditions in the current status; a condition that keeps its status keeps its transition time.
        generation: the observed generation of the object.
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
