"""Pure functions that find the grants of an earlier leader in the ConfigMap and in the zones' statuses and specs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Final

from tenantzone_contract.zone_config.config import MAX_GENERATION, RuntimeConfig, ZoneConfig
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Type
from tenantzone_operator.kube.resources import Zone

MAX_READ_GENERATION: Final = MAX_GENERATION // 2
"""Upper bound for generations in unsigned objects. The operator ignores larger generations.

The other half of the range is reserved for the operator's own increases, so that it never runs out of generations. A
pool's generation must not decrease, because engines and statuses compare generations.
"""


_GENERATIONS_PER_SECOND: Final = 1_000_000
"""Maximum number by which forged configs of other clients can raise the operator's generation in a second."""


class Evidence(IntEnum):
    """Where the operator found a zone's grant. Of two conflicting grants, the grant with the lower value wins."""

    BOTH = 0
    """The zone's status and the ConfigMap agree."""
    STATUS = 1
    """The zone's status says that its spec was accepted, but the ConfigMap differs."""
    CONFIG = 2
    """Only the ConfigMap contains the grant."""


@dataclass(frozen=True, slots=True)
class Grants:
    """The grants of zones, and where the operator found them."""

    entries: Mapping[str, ZoneConfig]
    """Config entries that were granted, by zone name."""
    doubtful: Mapping[str, Evidence]
    """Where a grant was found, by zone name, for grants on which the status and the ConfigMap disagree.

    Such a grant counts only if it fits. If only the ConfigMap contains it, it also must not exceed the zone's spec.
    """


def is_confirmed(config: RuntimeConfig, pool_status: Mapping[str, Any]) -> bool:
    """Returns whether the hash in a pool's status confirms the content of this config.

    Args:
        config: the config from the ConfigMap.
        pool_status: the pool's status. An empty status, for example after a restored backup, confirms any config.
    """
    return not pool_status or pool_status.get("configHash") == config.hash


def plausible_generation(found: int) -> int:
    """Returns a generation that was read from an object, or 0 if the operator can't have written such a number."""
    return found if 0 <= found < MAX_READ_GENERATION else 0


def generation_known_to_engines(
    observations: Iterable[Observation], in_force: int, pool_created: str, now: float
) -> int:
    """Returns the newest generation among engines that refuse the operator's config as older than their own.

    Engines refuse the config if a restored backup or another client has lowered the generation in both the pool's
    status and the ConfigMap while no operator was the leader. Engines may send false reports, so a generation counts
    only if the operator can have reached it since the pool was created.

    Args:
        observations: one observation for each ready engine.
        in_force: the generation of the operator's config.
        pool_created: the time at which the pool was created, in RFC 3339.
        now: Unix time in seconds.

    Returns:
        The generation, or 0 if no engine has a newer generation than the operator.
    """
    most = _GENERATIONS_PER_SECOND * (1 + max(0, int(now - datetime.fromisoformat(pool_created).timestamp())))
    return max(
        (seen.newest_generation for seen in observations if in_force < seen.newest_generation <= most), default=0
    )


def agreed_grants(zones: Sequence[Zone], found: RuntimeConfig | None) -> Grants:
    """Returns the grants of zones for the case that the pool's status does not confirm the config in the ConfigMap.

    Args:
        zones: the pool's zones.
        found: the config in the pool's ConfigMap; None if it can't be read.
    """
    written = {entry.name: entry for entry in found.zones} if found is not None else {}
    by_name = {zone.meta.name: zone for zone in sorted(zones, key=lambda zone: zone.meta.age_order)}
    entries, doubtful = {}, {}
    for name in [*written, *(name for name in by_name if name not in written)]:
        zone, entry = by_name.get(name), written.get(name)
        if zone is None:
            continue
        if zone.config is not None and _is_reported_accepted(zone):
            entries[name] = zone.config
            if entry != zone.config:
                doubtful[name] = Evidence.STATUS
        elif entry is not None:
            entries[name], doubtful[name] = entry, Evidence.CONFIG
    return Grants(entries, doubtful)


def _is_reported_accepted(zone: Zone) -> bool:
    """Returns whether the zone's status says that its current spec was accepted."""
    return any(
        found.get("type") == Type.ACCEPTED
        and found.get("status") == "True"
        and found.get("observedGeneration") == zone.meta.generation
        for found in zone.status.get("conditions", [])
    )
