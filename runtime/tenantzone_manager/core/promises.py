"""Reservations and limits of a group's accounts.

A zone's quota applies to all of its instances together. A zone may have one instance for each model and KV
configuration. Each instance gets an equal part of the quota when the instance is registered. Therefore, the quota
bounds the zone from its first byte on, and no bytes are reserved twice. While a zone has no instances, a separate
account holds the zone's reservation.
"""

from collections.abc import Mapping, Sequence

from tenantzone_contract.cache.cache_names import owner_of
from tenantzone_manager.core import books
from tenantzone_manager.core.quota import UNLIMITED, Terms
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Quota

Members = Mapping[str, Sequence[str]]
"""The names of a group's instances, by zone."""


def zone_of(instance: Instance) -> str:
    """Returns the name of an instance's zone, NAMESPACE/POOL/OWNER, or an empty string if it has no zone."""
    owner = owner_of(instance.name)
    return f"{instance.pool}/{owner}" if instance.pool and owner else ""


def group_terms(group: InstanceGroup, members: Members) -> list[Terms]:
    """Returns the terms (reservation and limit) of all accounts for which a group's settings have a quota.

    Args:
        group: the new settings of the group.
        members: the registered instances of the zones in these settings.
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
    """Returns the terms of the accounts of a zone and its instances. Instances with their own quotas are left out.

    Args:
        group: the zone's group.
        zone: name of the zone; the group may have no quotas for it.
        members: names of all instances of the zone.
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
    """Returns terms that remove the reservations and limits of the same accounts."""
    return [Terms(each.chain) for each in terms]


def _of_instance(group: InstanceGroup, name: str, quotas: Mapping[str, InstanceQuota]) -> list[Terms]:
    owner = books.Owner(name, group.name)
    return [Terms(books.chain(owner, where), own.reserved, _limit(own)) for where, own in quotas.items()]


def _part(quota: InstanceQuota, count: int) -> InstanceQuota:
    limit = None if quota.limit is None else quota.limit // count
    return InstanceQuota(quota.reserved // count, limit)


def _limit(quota: Quota | InstanceQuota) -> int:
    return UNLIMITED if quota.limit is None else quota.limit
