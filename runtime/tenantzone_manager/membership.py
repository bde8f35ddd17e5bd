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
            known: instances of zones, by zone. Where something else is recorded, what is there counts.

        Returns:
            the group as it is now.

        Raises:
            Exception: whatever ``say`` raises; nothing was changed.
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
            # What an instance has that is another group's by now is that group's to say.
            others = {each for each, address in instances.items() if found[address] and found[address].group != name}
            recorded = {
                zone: [each for each in found[address] or () if each not in others] for zone, address in members.items()
            }
            before = group_terms(found[at], recorded) if found[at] is not None else []
            return _latest(lifted(before), group_terms(made, sharing))

        await self._index.read_modify_write([at, *members.values(), *instances.values()], modifier, terms)
        return made

    async def remove(self, name: str, check: Callable[[list[str]], None]) -> None:
        """Take out a group, with all that was said of it.

        Args:
            name: the group's.
            check: is told which instances of its zones are there, and raises if there must be none.
        """
        at, evictions = _group(name), Address(spaces.EVICTIONS, name.encode())
        zones: set[str] = set()

        def modifier(found: Found) -> dict[Address, Any]:
            named = {*(found[at].zones if found[at] else ())}
            if not named <= zones:
                raise _Unread(named, set())
            check(sorted(each for zone in named for each in found[spaces.members_of(name, zone)] or ()))
            # Those of its zones are compared: none of their instances may come meanwhile.
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
        """Take out an instance; those of its zone share what it was promised. Another one of its name stays."""
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
        """Mend what is recorded of zones where it is not what is known, as after an older manager has written it.

        Args:
            groups: all of them.
            known: by group and zone, the instances.

        Returns:
            the groups of which something was fixed.
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
    """Names of instances by group and zone."""
    found: dict[str, dict[str, list[str]]] = {}
    for instance in instances:
        if zone := zone_of(instance):
            found.setdefault(instance.group, {}).setdefault(zone, []).append(instance.name)
    return found


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
