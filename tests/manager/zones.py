"""Zones of a group, their instances, and what their accounts say."""

from collections.abc import AsyncIterator

from tenantzone_contract.cache.cache_names import instance_name
from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core import books
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Spec, Storage
from tenantzone_manager.index.meta_index import MetaIndex

WHERE = "FileSystem"
POOL = "shop/chat"
ACME = f"{POOL}/acme"
QUOTA = {WHERE: InstanceQuota(reserved=60, limit=120)}


def instance(number: int, tenant: str = "acme", pool: str = POOL, group: str = "team") -> Instance:
    """One of a zone's, as an engine names it."""
    return Instance(instance_name(tenant, f"{number:048}"), group, 16, (Spec("tp0", 1),), pool=pool)


def team(**fields: object) -> InstanceGroup:
    return InstanceGroup("team", ("disk",), (POOL,), **fields)  # type: ignore[arg-type]


async def started(index: MetaIndex) -> Catalog:
    await index.start()
    catalog = Catalog(index)
    await catalog.load()
    await catalog.put_storage(Storage("disk", WHERE))
    return catalog


async def quota_of(catalog: Catalog, name: str, where: str = WHERE) -> tuple[int, int]:
    """What an instance's account is promised, and may use."""
    account = await catalog._index.account(books.instance_account(name, where))
    return account.reserved, account.limit


async def committed(catalog: Catalog) -> int:
    return (await catalog._index.account("g/team")).committed


async def members(catalog: Catalog) -> AsyncIterator[bytes]:
    for key, _ in (await catalog._index.scan(spaces.MEMBERS, b"", 100))[0]:
        yield key
