"""A group's record, those of its zones' instances, and the terms that follow from both: all change together.

Each change compares what it has read, also where it leaves it as it was: so nobody who registers an instance misses
what is said of its zone at that time, and nobody who says something of a zone misses an instance that comes or goes.
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
"""A group as it shall be, by what it was; None: there is none, and none shall be."""


class _Unread(Exception):
    """What is there names more than was read."""

    def __init__(self, zones: set[str], names: set[str]) -> None:
        super().__init__()
        self.zones = zones
        self.names = names


class Membership:
    """Who shares what a group says of a zone.

    Args:
        index: where all of it is kept.
    """

    def __init__(self, index: MetaIndex) -> None:
        self._index = index

    async def rewrite(self, name: str, say: Say, known: Members) -> InstanceGroup | None:
        """Have a group be as it shall be, and each instance of its zones have its part.

        Args:
            name: the group's.
            say: may be called several times.
            known: instances of zones, by zone; those that are not there are left out, whoever has recorded them.

        Returns:
            the group as it is now.

        Raises:
            Exception: whatever ``say`` raises; nothing was changed.
        """
        zones: set[str] = set()
        further: set[str] = set()
        while True:
            names = further.union(*(known.get(zone, ()) for zone in zones))
            try:
                return await self._rewrite(name, say, zones, names)
            except _Unread as unread:
                zones |= unread.zones
                further |= unread.names

    async def _rewrite(self, name: str, say: Say, zones: set[str], names: set[str]) -> InstanceGroup | None:
        at = _group(name)
        members = {zone: spaces.members_of(name, zone) for zone in zones}
        instances = {each: _instance(each) for each in names}
        made: InstanceGroup | None = None
        sharing: dict[str, tuple[str, ...]] = {}

        def modifier(found: Found) -> dict[Address, Any]:
            nonlocal made, sharing
            made = say(found[at])
            if made is None:
                return {}
            recorded = {zone: found[address] or () for zone, address in members.items()}
            _check_read({*made.zones, *(found[at] or made).zones} - zones, _all_of(recorded) - names)
            sharing = _sharing(name, zones, [found[address] for address in instances.values()])
            unrecorded = {each for zone in zones for each in sharing[zone] if each not in recorded[zone]}
            return {
                at: made,
                **{address: sharing[zone] or None for zone, address in members.items()},
                **{instances[each]: found[instances[each]] for each in unrecorded},
            }

        def terms(found: Found) -> list[Terms]:
            if made is None:
                return []
            recorded = {zone: found[address] or () for zone, address in members.items()}
            before = group_terms(found[at], recorded) if found[at] is not None else []
            return _latest(lifted(before), group_terms(made, sharing))

        await self._index.read_modify_write([at, *members.values(), *instances.values()], modifier, terms)
        return made

    async def join(self, instance: Instance, check: Callable[[Instance | None, InstanceGroup | None], None]) -> None:
        """Have an instance, with its part of what is said of its zone.

        Args:
            instance: one that is there in just this way is left as it is.
            check: is told the instance of this name and the group as they are, and raises what speaks against it.
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
        """Take out an instance; those of its zone share what it was promised."""
        at, in_group, zone = _instance(instance.name), _group(instance.group), zone_of(instance)
        members = spaces.members_of(instance.group, zone)

        def modifier(found: Found) -> dict[Address, Any]:
            changed = {at: None, in_group: found[in_group], members: _without(found[members], instance.name)}
            return {address: after for address, after in changed.items() if found[address] is not None}

        def terms(found: Found) -> list[Terms]:
            group, names = found[in_group], found[members]
            if group is None or instance.name not in (names or ()):
                return []
            rest = _without(names, instance.name) or ()
            return _latest(lifted(zone_terms(group, zone, names)), zone_terms(group, zone, rest))

        await self._index.read_modify_write([at, in_group, members], modifier, terms)

    async def mend(self, groups: Iterable[InstanceGroup], known: Mapping[str, Members]) -> list[str]:
        """Mend what is recorded of zones where it is not what is known, as after an older manager has written it.

        Args:
            groups: all of them.
            known: by group and zone, the instances.

        Returns:
            the groups of which something was mended.
        """
        mended = []
        for group in groups:
            mine = known.get(group.name, {})
            keys = [spaces.members_of(group.name, zone).key for zone in group.zones]
            records = await self._index.get(spaces.MEMBERS, keys) if keys else []
            recorded = [set(record.value) if record is not None else set() for record in records]
            if recorded != [set(mine.get(zone, ())) for zone in group.zones]:
                await self.rewrite(group.name, lambda found: found, mine)
                mended.append(group.name)
        return mended


def by_zone(instances: Iterable[Instance]) -> dict[str, dict[str, list[str]]]:
    """Names of instances by group and zone."""
    found: dict[str, dict[str, list[str]]] = {}
    for instance in instances:
        if zone := zone_of(instance):
            found.setdefault(instance.group, {}).setdefault(zone, []).append(instance.name)
    return found


def _check_read(zones: set[str], names: set[str]) -> None:
    if zones or names:
        raise _Unread(zones, names)


def _all_of(members: Members) -> set[str]:
    return {name for names in members.values() for name in names}


def _sharing(group: str, zones: Iterable[str], instances: Iterable[Instance | None]) -> dict[str, tuple[str, ...]]:
    """The instances of each zone, of those that are there."""
    there = by_zone(instance for instance in instances if instance is not None).get(group, {})
    return {zone: tuple(sorted(there.get(zone, ()))) for zone in zones}


def _latest(*terms: Iterable[Terms]) -> list[Terms]:
    """The last of what is said of each account."""
    return list({each.chain: each for some in terms for each in some}.values())


def _group(name: str) -> Address:
    return Address(spaces.GROUPS, name.encode())


def _instance(name: str) -> Address:
    return Address(spaces.INSTANCES, name.encode())


def _with(names: tuple[str, ...] | None, name: str) -> tuple[str, ...]:
    return (*(each for each in names or () if each != name), name)


def _without(names: tuple[str, ...] | None, name: str) -> tuple[str, ...] | None:
    """None: nobody is left."""
    return tuple(each for each in names or () if each != name) or None
