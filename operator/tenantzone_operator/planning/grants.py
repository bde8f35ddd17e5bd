"""Finds what was granted before this operator led, from the zones' statuses and specs and the ConfigMap; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Final

from tenantzone_contract.config import MAX_GENERATION, RuntimeConfig, ZoneConfig
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Type
from tenantzone_operator.kube.resources import Zone

MAX_READ_GENERATION: Final = MAX_GENERATION // 2
"""A generation that was read from an object counts only below this, unless it is signed with the operator's key.

As many are left from there on: they never run out, so a pool's generation does not fall, which engines and statuses
compare.
"""


_GENERATIONS_PER_SECOND: Final = 1_000_000
"""More than others can make an operator write by forged configs, each of which raises the generation."""


class Evidence(IntEnum):
    """The evidence for a zone's grant; of two grants that conflict, the one with the lower value wins."""

    BOTH = 0
    """The zone's status and the ConfigMap agree."""
    STATUS = 1
    """The zone's status says that its spec was accepted, but the ConfigMap differs."""
    CONFIG = 2
    """Only the ConfigMap contains the grant."""


@dataclass(frozen=True, slots=True)
class Grants:
    """The grants of zones, by name, and the evidence for them."""

    entries: Mapping[str, ZoneConfig]
    doubtful: Mapping[str, Evidence]
    """The grants that status and ConfigMap do not agree on.

    They count only if they fit; those from the ConfigMap alone only if the zone's spec asks for as much.
    """


def is_confirmed(config: RuntimeConfig, pool_status: Mapping[str, Any]) -> bool:
    """Returns whether a pool's status names the content of this config as the one in force.

    Args:
        config: the config that was read.
        pool_status: the pool's status. An empty status, as after restoring a backup, contradicts no config.
    """
    return not pool_status or pool_status.get("configHash") == config.hash


def plausible_generation(found: int) -> int:
    """Returns a generation that was read from an object, or 0 if the operator cannot have written it."""
    return found if 0 <= found < MAX_READ_GENERATION else 0


def generation_known_to_engines(
    observations: Iterable[Observation], in_force: int, pool_created: str, now: float
) -> int:
    """Returns the newest generation that engines know, if they refuse the operator's config because it is older.

    That happens after the pool's status and ConfigMap were lowered together while no operator led, for example by a
    restored backup. An engine may lie: a generation counts only if the operator can have written as many since the pool
    was created.

    Args:
        observations: one for each ready engine.
        in_force: the generation of the operator's config.
        pool_created: the time at which the pool was created, in RFC 3339.
        now: Unix time in seconds.

    Returns:
        The generation, or 0 if no engine knows a newer one than the operator.
    """
    most = _GENERATIONS_PER_SECOND * (1 + max(0, int(now - datetime.fromisoformat(pool_created).timestamp())))
    return max(
        (seen.newest_generation for seen in observations if in_force < seen.newest_generation <= most), default=0
    )


def agreed_grants(zones: Sequence[Zone], found: RuntimeConfig | None) -> Grants:
    """Returns the grants of zones if the pool's status does not confirm the config that was found.

    Args:
        zones: the pool's zones.
        found: the content of its ConfigMap; None if it can't be read.
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
