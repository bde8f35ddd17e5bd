"""Reservations and limits of a group's accounts.

A zone's quota is for all of its instances together; it may have one for each model and KV configuration. Each gets an
equal part, from the moment it is registered, so a zone's first bytes are bounded as well as its last ones, and no
bytes are reserved for two instances. While a zone has no instance, a separate account holds its reservation.
"""

from collections.abc import Mapping, Sequence

from tenantzone_contract.cache_names import owner_of
from tenantzone_manager.core import books
from tenantzone_manager.core.quota import UNLIMITED, Terms
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Quota

Members = Mapping[str, Sequence[str]]
"""The names of a group's instances, by zone."""


def zone_of(instance: Instance) -> str:
    """Returns an instance's zone, NAMESPACE/POOL/OWNER; empty: it has none."""
    owner = owner_of(instance.name)
    return f"{instance.pool}/{owner}" if instance.pool and owner else ""


def group_terms(group: InstanceGroup, members: Members) -> list[Terms]:
    """Returns the terms that a group's settings give its accounts.

    Args:
        group: the new settings.
        members: the registered instances of the zones that it names.
    """
    made = [Terms((f"g/{group.name}",), limit=_limit(group.total))]
    for where, quota in group.types.items():
        made.append(Terms((books.group_chain(group.name, where)[0],), limit=_limit(quota)))
    for name, quotas in group.instances.items():
        made += _of_instance(group, name, quotas)
    for zone in group.zones:
        made += zone_terms(group, zone, members.get(zone, ()))
    return made


def zone_terms(group: InstanceGroup, zone: str, members: Sequence[str]) -> list[Terms]:
    """Returns the terms for a zone with these instances; an instance with quotas of its own keeps them.

    Args:
        group: the zone's group.
        zone: name of the zone; the group may have no quotas for it.
        members: names of all of its instances.
    """
    sharing = [name for name in members if name not in group.instances]
    quotas = group.zones.get(zone, {})
    made = [
        Terms(books.chain_until_claimed(group.name, zone, where), 0 if sharing else quota.reserved)
        for where, quota in quotas.items()
    ]
    for name in sharing:
        made += _of_instance(group, name, {where: _part(quota, len(sharing)) for where, quota in quotas.items()})
    return made


def lifted(terms: Sequence[Terms]) -> list[Terms]:
    """Returns terms for the same accounts without a reservation or limit."""
    return [Terms(each.chain) for each in terms]


def _of_instance(group: InstanceGroup, name: str, quotas: Mapping[str, InstanceQuota]) -> list[Terms]:
    owner = books.Owner(name, group.name)
    return [Terms(books.chain(owner, where), own.reserved, _limit(own)) for where, own in quotas.items()]


def _part(quota: InstanceQuota, count: int) -> InstanceQuota:
    limit = None if quota.limit is None else quota.limit // count
    return InstanceQuota(quota.reserved // count, limit)


def _limit(quota: Quota | InstanceQuota) -> int:
    return UNLIMITED if quota.limit is None else quota.limit
