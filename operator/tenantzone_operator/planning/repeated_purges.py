"""Handles repeated purges. A user requests a new purge by removing a purge id from a zone and setting the id again.

Engines carry out each id only once. So the config adds a number to a repeated id, for example ``first#2``. An id in an
annotation can't contain the number sign.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_operator.kube.resources import Zone

_NUMBER: Final = "#"
_MAX_DIGITS: Final = 8


def with_repeated_purges(zones: Sequence[Zone], in_force: RuntimeConfig | None) -> list[Zone]:
    """Returns the zones with purge ids as the engines need them: with a number if the purge is repeated.

    Args:
        zones: the zones as stored in the API server.
        in_force: the last published snapshot; None if unknown.
    """
    if not any(zone.config is not None and zone.config.purge for zone in zones):
        return list(zones)
    before = {entry.name: entry.purge for entry in in_force.zones} if in_force is not None else {}
    return [_with_purge(zone, before.get(zone.meta.name)) for zone in zones]


def _with_purge(zone: Zone, in_force: str | None) -> Zone:
    if zone.config is None or not zone.config.purge:
        return zone
    purge = _purge(zone.config.purge, in_force, zone.status.get("purge") or {})
    return zone if purge == zone.config.purge else replace(zone, config=zone.config.model_copy(update={"purge": purge}))


def _purge(asked: str, in_force: str | None, last: dict[str, str]) -> str:
    """Returns the id under which the engines get the purge that an annotation requests.

    Args:
        asked: the annotation's value.
        in_force: the id in the zone's last published entry; None if there is no entry.
        last: the record of the zone's last purge, from its status.
    """
    if in_force and _annotated(in_force) == asked:
        return in_force
    recorded = last.get("id", "")
    if _annotated(recorded) != asked:
        return asked
    # Without a published entry, or while the last purge is incomplete, assume that the user has not removed the id.
    if in_force is None or "completedAt" not in last:
        return recorded
    return f"{asked}{_NUMBER}{_number(recorded) + 1}"


def _annotated(purge: str) -> str:
    return purge.partition(_NUMBER)[0]


def _number(purge: str) -> int:
    # Check the number: other clients may write statuses, and engines refuse an id if its number is too long.
    number = purge.partition(_NUMBER)[2]
    return int(number) if number.isdecimal() and len(number) <= _MAX_DIGITS else 1
