"""What was granted before this operator led, by the zones' statuses, their specs and the ConfigMap; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from tenantzone_contract.config import MAX_GENERATION, RuntimeConfig, ZoneConfig
from tenantzone_operator.kube.conditions import Type
from tenantzone_operator.kube.resources import Zone

MAX_READ_GENERATION: Final = MAX_GENERATION // 2
"""A generation that was read from an object counts only below this, unless it is signed with the operator's key.

As many are left from there on: they never run out, so a pool's generation does not fall, which engines and statuses
compare.
"""


class Evidence(IntEnum):
    """What says that a zone was granted an entry; of two grants that do not fit together the lower one counts first."""

    BOTH = 0
    """The zone's status and the ConfigMap."""
    STATUS = 1
    """The zone's status says that its spec was accepted, and the ConfigMap has something else."""
    CONFIG = 2
    """Only the ConfigMap."""


@dataclass(frozen=True, slots=True)
class Grants:
    """What zones were granted, by name, and what says so."""

    entries: Mapping[str, ZoneConfig]
    doubtful: Mapping[str, Evidence]
    """Of the entries that not both say. They count only where they fit, those that only the ConfigMap has only if the
    zone's spec asks for as much."""


def is_confirmed(config: RuntimeConfig, pool_status: Mapping[str, Any]) -> bool:
    """Whether a pool's status names the content of this config as the one in force.

    Args:
        config: as it was read.
        pool_status: of its pool. An empty one, as after a backup was restored, contradicts no config.
    """
    return not pool_status or pool_status.get("configHash") == config.hash


def plausible_generation(found: int) -> int:
    """Returns a generation that was read from an object, or 0 if the operator cannot have written it."""
    return found if 0 <= found < MAX_READ_GENERATION else 0


def agreed_grants(zones: Sequence[Zone], found: RuntimeConfig | None) -> Grants:
    """What zones were granted, where nothing confirms the config that was found.

    Args:
        zones: of the pool.
        found: what its ConfigMap holds; None: nothing that can be read.
    """
    written = {entry.name: entry for entry in found.zones} if found is not None else {}
    by_name = {zone.meta.name: zone for zone in sorted(zones, key=lambda zone: zone.meta.age_order)}
    entries, doubtful = {}, {}
    for name in [*written, *(name for name in by_name if name not in written)]:
        zone, entry = by_name.get(name), written.get(name)
        if zone is None:
            continue
        if zone.config is not None and _is_told_accepted(zone):
            entries[name] = zone.config
            if entry != zone.config:
                doubtful[name] = Evidence.STATUS
        elif entry is not None:
            entries[name], doubtful[name] = entry, Evidence.CONFIG
    return Grants(entries, doubtful)


def _is_told_accepted(zone: Zone) -> bool:
    """Whether the zone's status says that its spec, as it is now, was accepted."""
    return any(
        found.get("type") == Type.ACCEPTED
        and found.get("status") == "True"
        and found.get("observedGeneration") == zone.meta.generation
        for found in zone.status.get("conditions", [])
    )
