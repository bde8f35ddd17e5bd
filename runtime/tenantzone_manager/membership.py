"""Changes a group, the lists of its zones' instances, and the quotas that follow from both, in one commit.

A commit fails if any record that was read for it has changed meanwhile. Therefore, the registration of an instance
can't miss a concurrent change of its zone's quotas, and a change of quotas can't miss a registration or removal.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tenantzone_manager import spaces
from tenantzone_manager.core.promises import Members, group_terms, lifted, zone_of, zone_terms
from tenantzone_manager.core.quota import Terms
from tenantzone_manager.core.settings import Instance, InstanceGroup
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex

Say = Callable[[InstanceGroup | None], InstanceGroup | None]
"""Maps the current settings of a group to the new settings. None means that the group does not exist."""


class _Unread(Exception):
    """The change needs records of more zones or instances. The caller must read these records, too, and try again."""

    def __init__(self, zones: set[str], names: set[str]) -> None:
        super().__init__()
        self.zones = zones
        self.names = names


class Membership:
    """Maintains the list of instances of each zone (its member list), and each instance's part of the zone's quota.

    Args:
        index: the index.
    """

    def __init__(self, index: MetaIndex) -> None:
        self._index = index

    async def rewrite(self, name: str, say: Say, known: Members) -> InstanceGroup | None:
        """Change a group, and give each instance of its zones an equal part of the zone's quota.

        Args:
            name: name of the group.
            say: receives the current group, and returns the new group. It may be called several times.
            known: names of the instances in the catalog, by zone. If a member list in the index differs, the records of
                these instances are read.

        Returns:
            The new group, or None if ``say`` returned None.

        Raises:
            Exception: any exception that ``say`` raises; nothing was changed.
        """
        zones: set[str] = set()
        doubtful: set[str] = set()
        while True:
            try:
                return await self._rewrite(name, say, known, zones, doubtful)
            except _Unread as unread:
                zones |= unread.zones
                doubtful |= unread.names

    async def _rewrite(
        self, name: str, say: Say, known: Members, zones: set[str], doubtful: set[str]
    ) -> InstanceGroup | None:
        at = _group(name)
        members = {zone: spaces.members_of(name, zone) for zone in zones}
        instances = {each: _instance(each) for each in doubtful}
        made: InstanceGroup | None = None
        sharing: Members = {}

        def modifier(found: Found) -> dict[Address, Any]:
            nonlocal made, sharing
            made = say(found[at])
            recorded = {zone: found[address] or () for zone, address in members.items()}
            named = {*(made.zones if made else ()), *(found[at].zones if found[at] else ())}
            unlike = {each for zone in zones for each in {*recorded[zone]} ^ {*known.get(zone, ())}}
            if not (named <= zones and unlike <= doubtful):
                raise _Unread(named, unlike)
            there = by_zone(found[address] for address in instances.values() if found[address] is not None)
            sharing = {
                zone: sorted({*recorded[zone]} & {*known.get(zone, ())} | {*there.get(name, {}).get(zone, ())})
                for zone in zones
            }
            if made is None:
                return {}
            return {
                at: made,
                **{address: tuple(sharing[zone]) or None for zone, address in members.items()},
                **{address: found[address] for address in instances.values()},
            }

        def terms(found: Found) -> list[Terms]:
            if made is None:
                return []
            # Skip instances that are now registered in another group, because that group sets their terms.
            others = {each for each, address in instances.items() if found[address] and found[address].group != name}
            recorded = {
                zone: [each for each in found[address] or () if each not in others] for zone, address in members.items()
            }
            before = group_terms(found[at], recorded) if found[at] is not None else []
            return _latest(lifted(before), group_terms(made, sharing))

        await self._index.read_modify_write([at, *members.values(), *instances.values()], modifier, terms)
        return made

    async def remove(self, name: str, check: Callable[[list[str]], None]) -> None:
        """Remove a group with all its terms.

        Args:
            name: name of the group.
            check: called with the names of the instances of the group's zones; raises an error to refuse the removal.
        """
        at, evictions = _group(name), Address(spaces.EVICTIONS, name.encode())
        zones: set[str] = set()

        def modifier(found: Found) -> dict[Address, Any]:
            named = {*(found[at].zones if found[at] else ())}
            if not named <= zones:
                raise _Unread(named, set())
            check(sorted(each for zone in named for each in found[spaces.members_of(name, zone)] or ()))
            # The commit includes the member lists, so the commit fails if an instance joins meanwhile.
            return dict.fromkeys(found)

        def terms(found: Found) -> list[Terms]:
            return lifted(group_terms(found[at], {})) if found[at] is not None else []

        while True:
            members = [spaces.members_of(name, zone) for zone in zones]
            try:
                await self._index.read_modify_write([at, evictions, *members], modifier, terms)
            except _Unread as unread:
                zones |= unread.zones
            else:
                return

    async def join(self, instance: Instance, check: Callable[[Instance | None, InstanceGroup | None], None]) -> None:
        """Register an instance, and give each instance of its zone an equal part of the zone's quota.

        Args:
            instance: the new instance. If an instance with this name exists and ``check`` accepts it, nothing changes.
            check: called with the current instance of this name and with its group, or None for each if there is none;
                raises an error to refuse the change.
        """
        at, in_group, zone = _instance(instance.name), _group(instance.group), zone_of(instance)
        members = spaces.members_of(instance.group, zone)

        def modifier(found: Found) -> dict[Address, Any]:
            check(found[at], found[in_group])
            if found[at] is not None:
                return {}
            if not zone:
                return {at: instance}
            return {at: instance, in_group: found[in_group], members: _with(found[members], instance.name)}

        def terms(found: Found) -> list[Terms]:
            if found[at] is not None or not zone:
                return []
            return zone_terms(found[in_group], zone, _with(found[members], instance.name))

        await self._index.read_modify_write([at, in_group, members], modifier, terms)

    async def leave(self, instance: Instance) -> None:
        """Remove an instance, and divide its reservation among the other instances of its zone.

        If a different instance has this name now, nothing changes.
        """
        at, in_group, zone = _instance(instance.name), _group(instance.group), zone_of(instance)
        members = spaces.members_of(instance.group, zone)

        def modifier(found: Found) -> dict[Address, Any]:
            if found[at] not in (None, instance):
                return {}
            return {at: None, in_group: found[in_group], members: _without(found[members], instance.name)}

        def terms(found: Found) -> list[Terms]:
            group, names = found[in_group], found[members]
            if found[at] not in (None, instance) or group is None or instance.name not in (names or ()):
                return []
            rest = _without(names, instance.name) or ()
            return _latest(lifted(zone_terms(group, zone, names)), zone_terms(group, zone, rest))

        await self._index.read_modify_write([at, in_group, members], modifier, terms)

    async def fix(self, groups: Iterable[InstanceGroup], known: Mapping[str, Members]) -> list[str]:
        """Correct member lists that differ from the catalog, for example after a corrupt list was dropped.

        Args:
            groups: all groups.
            known: names of the instances in the catalog, by group and zone.

        Returns:
            The names of the groups that were corrected.
        """
        fixed = []
        for group in groups:
            mine = known.get(group.name, {})
            keys = [spaces.members_of(group.name, zone).key for zone in group.zones]
            records = await self._index.get(spaces.MEMBERS, keys) if keys else []
            recorded = [set(record.value) if record is not None else set() for record in records]
            if recorded != [set(mine.get(zone, ())) for zone in group.zones]:
                await self.rewrite(group.name, lambda found: found, mine)
                fixed.append(group.name)
        return fixed


def by_zone(instances: Iterable[Instance]) -> dict[str, dict[str, list[str]]]:
    """Returns the names of instances by group and zone."""
    found: dict[str, dict[str, list[str]]] = {}
    for instance in instances:
        if zone := zone_of(instance):
            found.setdefault(instance.group, {}).setdefault(zone, []).append(instance.name)
    return found


def _latest(*terms: Iterable[Terms]) -> list[Terms]:
    """Returns one item of ``terms`` for each chain of accounts: the last item with this chain."""
    return list({each.chain: each for some in terms for each in some}.values())


def _group(name: str) -> Address:
    return Address(spaces.GROUPS, name.encode())


def _instance(name: str) -> Address:
    return Address(spaces.INSTANCES, name.encode())


def _with(names: tuple[str, ...] | None, name: str) -> tuple[str, ...]:
    return (*(each for each in names or () if each != name), name)


def _without(names: tuple[str, ...] | None, name: str) -> tuple[str, ...] | None:
    """Returns ``names`` without ``name``, or None if no name is left."""
    return tuple(each for each in names or () if each != name) or None
