"""What a group's accounts are promised, and what they may use at most.

What is said of a zone holds for all of its instances together, of which there may be one for each model and KV
configuration: each has an equal part. An instance has its part in the moment in which it is registered, so a zone's
first bytes are bounded as well as its last ones, and a new instance is never promised what its sisters still are. While
a zone has no instance an account that nobody uses keeps what it is promised.
"""

from collections.abc import Mapping, Sequence

from tenantzone_contract.cache_names import owner_of
from tenantzone_manager.core import books
from tenantzone_manager.core.quota import UNLIMITED, Terms
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Quota

Members = Mapping[str, Sequence[str]]
"""The names of a group's instances by the zone that they are of."""


def zone_of(instance: Instance) -> str:
    """The zone that an instance is of, NAMESPACE/POOL/OWNER; empty: of none."""
    owner = owner_of(instance.name)
    return f"{instance.pool}/{owner}" if instance.pool and owner else ""


def group_terms(group: InstanceGroup, members: Members) -> list[Terms]:
    """What takes effect with a group.

    Args:
        group: as it shall be.
        members: the instances of the zones that it names, as far as there are some.
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
    """What takes effect for a zone when these are its instances; what is said of one by itself stays.

    Args:
        group: whose zone it is.
        zone: of which the group may say nothing.
        members: all of its instances.
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
    """Terms of the same accounts as if nothing was said of them."""
    return [Terms(each.chain) for each in terms]


def _of_instance(group: InstanceGroup, name: str, quotas: Mapping[str, InstanceQuota]) -> list[Terms]:
    owner = books.Owner(name, group.name)
    return [Terms(books.chain(owner, where), own.reserved, _limit(own)) for where, own in quotas.items()]


def _part(quota: InstanceQuota, count: int) -> InstanceQuota:
    limit = None if quota.limit is None else quota.limit // count
    return InstanceQuota(quota.reserved // count, limit)


def _limit(quota: Quota | InstanceQuota) -> int:
    return UNLIMITED if quota.limit is None else quota.limit
