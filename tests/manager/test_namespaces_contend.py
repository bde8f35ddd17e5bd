"""What several say of one group, in turns and at once: it comes to rest as all of them want it, over each store."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog, NotFound, Refused
from tenantzone_manager.core import books
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Quota, Spec, Storage
from tenantzone_manager.index.backend import IndexBackend
from tenantzone_manager.index.meta_index import IndexSettings, MetaIndex
from tenantzone_manager.server.access import Caller
from tenantzone_manager.server.admin_calls import AdminCalls
from tenantzone_manager.server.messages import Empty, OfStorage
from tests.manager.playing import Playing

NAMESPACES = ("shop", "lab")


def said(namespace: str, reserved: int, total: int | None = None, where: str = "FileSystem") -> InstanceGroup:
    """As the operator of a namespace says it."""
    instances = {f"of-{namespace}": {where: InstanceQuota(reserved)}} if reserved else {}
    return InstanceGroup("team", ("disk",), (f"{namespace}/demo",), Quota(total), instances=instances)


async def started(index: MetaIndex) -> Catalog:
    await index.start()
    catalog = Catalog(index)
    await catalog.load()
    return catalog


async def with_instances(catalog: Catalog) -> Catalog:
    await catalog.put_storage(Storage("disk", "FileSystem"))
    await catalog.put_group(said("shop", 0), "shop")
    for each in NAMESPACES:
        await catalog.register_instance(Instance(f"of-{each}", "team", 16, (Spec("tp0", 1),), pool=f"{each}/demo"))
    return catalog


@pytest.fixture
async def catalog(store: Callable[[], IndexBackend]) -> AsyncIterator[Catalog]:
    index = MetaIndex(store(), spaces.codec, IndexSettings())
    yield await with_instances(await started(index))
    await index.close()


@pytest.fixture
async def catalogs(redis_store: Callable[[], IndexBackend]) -> AsyncIterator[list[Catalog]]:
    """Those of two managers over one store; the second knows what the first one has registered so far."""
    indices = [MetaIndex(redis_store(), spaces.codec, IndexSettings()) for _ in range(2)]
    first = await with_instances(await started(indices[0]))
    yield [first, await started(indices[1])]
    for index in indices:
        await index.close()


async def reserved(catalog: Catalog, namespace: str) -> int:
    account = books.instance_account(f"of-{namespace}", "FileSystem")
    return (await catalog._index.account(account)).reserved


async def committed(catalog: Catalog) -> int:
    return (await catalog._index.account("g/team")).committed


async def test_a_group_whose_promises_and_limit_shrink_is_declared_by_one_namespace_after_the_other(
    catalog: Catalog,
) -> None:
    for each in NAMESPACES:
        await catalog.put_group(said(each, 50, 100), each)
    for each in NAMESPACES:
        await catalog.put_group(said(each, 30, 60), each)
    assert [await reserved(catalog, each) for each in NAMESPACES] == [30, 30]
    assert await committed(catalog) == 60
    assert catalog.group("team").total == Quota(60)


async def test_a_group_is_emptied_by_one_after_the_other(catalog: Catalog) -> None:
    for each in NAMESPACES:
        await catalog.put_group(said(each, 50, 100), each)
    for each in NAMESPACES:
        await catalog.put_group(InstanceGroup("team", ("disk",), total=Quota(0, 1.0)), each)
    assert catalog.group("team") == InstanceGroup("team", ("disk",), total=Quota(0, 1.0))
    assert await committed(catalog) == 0


@pytest.mark.parametrize("total", [Quota(60), Quota()])
async def test_a_zone_that_is_promised_more_needs_room_next_to_others(catalog: Catalog, total: Quota) -> None:
    types = {} if total.limit else {"FileSystem": Quota(60)}
    for each in NAMESPACES:
        await catalog.put_group(said(each, 50, 100), each)
    await catalog.put_group(replace(said("shop", 30), total=total, types=types), "shop")
    for more in (31, 60):
        with pytest.raises(ValueError, match=f"instances and zones reserve {more + 50} bytes"):
            await catalog.put_group(replace(said("shop", more), total=total, types=types), "shop")
    assert [await reserved(catalog, each) for each in NAMESPACES] == [30, 50]


async def test_two_let_a_group_go_at_once(catalog: Catalog) -> None:
    await catalog.put_group(said("shop", 5), "shop")
    for each in NAMESPACES:
        await catalog.forget_instance(catalog.instances[f"of-{each}"])
    ended = await asyncio.gather(*(catalog.remove_group("team") for _ in NAMESPACES), return_exceptions=True)
    assert {type(each) for each in ended} <= {type(None), NotFound}, ended
    assert (await committed(catalog), catalog.groups) == (0, {})


async def test_a_group_goes_with_what_was_declared_to_another_manager(catalogs: list[Catalog]) -> None:
    first, second = catalogs
    await first.put_group(said("shop", 5), "shop")
    for each in NAMESPACES:
        await second.forget_instance(second.instances[f"of-{each}"])
    await second.remove_group("team")
    assert [await reserved(second, each) for each in NAMESPACES] == [0, 0]
    assert await committed(second) == 0


async def test_a_storage_that_one_unregisters_is_not_missed_by_who_lists_them(playing: Playing) -> None:
    service, who = AdminCalls(playing.manager), Caller("operator", is_admin=True)
    for number in range(20):
        await playing.storage(f"gone-{number}")
    going = [service.unregister_storage(who, OfStorage(f"gone-{number}")) for number in range(20)]
    listing = asyncio.create_task(service.list_storages(who, Empty()))
    await asyncio.gather(listing, *going)
    assert "disk" in [each.storage.name for each in (await listing).storages]
    (left,) = (await service.list_storages(who, Empty())).storages
    assert left.storage.name == "disk"


async def test_nothing_is_promised_to_an_instance_in_another_group_than_its_own(catalog: Catalog) -> None:
    """Its bytes would be counted in one, and its promise in the other."""
    await catalog.put_group(said("shop", 5), "shop")
    other = InstanceGroup("other", ("disk",))
    await catalog.put_group(other)
    shop = catalog.instances["of-shop"]
    await catalog.forget_instance(shop)
    with pytest.raises(Refused, match="the group team has a quota for the instance of-shop"):
        await catalog.register_instance(replace(shop, group="other"))
    await catalog.put_group(said("shop", 0), "shop")
    await catalog.register_instance(replace(shop, group="other"))
    for namespace in ("shop", ""):
        with pytest.raises(Refused, match="instance of-shop belongs to the group other"):
            await catalog.put_group(said("shop", 5), namespace)
    assert await committed(catalog) == 0
