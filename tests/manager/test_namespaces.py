"""A group that several namespaces share: what is said for one leaves what is said for others, over each store."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.cache.cache_names import is_group_of, pool_group, zone_group
from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog, Refused
from tenantzone_manager.core import books
from tenantzone_manager.core.settings import (
    Instance,
    InstanceGroup,
    InstanceQuota,
    Quota,
    Spec,
    Storage,
)
from tenantzone_manager.core.sharing import of_namespace, shared
from tenantzone_manager.index.backend import IndexBackend
from tenantzone_manager.index.meta_index import IndexSettings, MetaIndex
from tenantzone_manager.server.access import Caller, Denied, StaticTokens, read_service_accounts

LONG = "p" * 63
Open = Callable[[], Any]


def instance(namespace: str, name: str = "") -> Instance:
    return Instance(
        name or f"of-{namespace}", "team", 16, (Spec("tp0", 1),), pool=f"{namespace}/demo" if namespace else ""
    )


def said(namespace: str, reserved: int = 0, **fields: Any) -> InstanceGroup:
    """As the operator of a namespace says it."""
    instances = {f"of-{namespace}": {"FileSystem": InstanceQuota(reserved)}} if reserved else {}
    names = {
        "pools": (f"{namespace}/demo",),
        "aliases": (pool_group(namespace, "demo"), zone_group(namespace, LONG, LONG)),
        "instances": instances,
    }
    return InstanceGroup("team", ("disk",), **{**names, **fields})


@pytest.fixture
async def opened(store: Callable[[], IndexBackend]) -> AsyncIterator[Callable[[], Any]]:
    """Opens what is registered; another one is opened only after the one before was closed, as by a restart."""
    indices: list[MetaIndex] = []

    async def open_() -> Catalog:
        while indices:
            await indices.pop().close()
        indices.append(MetaIndex(store(), spaces.codec, IndexSettings()))
        await indices[-1].start()
        catalog = Catalog(indices[-1])
        await catalog.load()
        return catalog

    yield open_
    for index in indices:
        await index.close()


@pytest.fixture
async def catalog(opened: Open) -> Catalog:
    made: Catalog = await opened()
    await made.put_storage(Storage("disk", "FileSystem"))
    return made


async def reserved(catalog: Catalog, namespace: str) -> int:
    """What the accounts keep for a namespace's instance."""
    account = books.instance_account(f"of-{namespace}", "FileSystem")
    return (await catalog._index.account(account)).reserved


async def test_what_is_said_for_one_namespace_leaves_what_is_said_for_another(catalog: Catalog, opened: Open) -> None:
    await catalog.put_group(said("shop"), "shop")
    for namespace in ("shop", "lab"):
        await catalog.register_instance(instance(namespace))
    await catalog.put_group(said("lab", reserved=7, total=Quota(100)), "lab")
    await catalog.put_group(said("shop", reserved=5, total=Quota(100)), "shop")
    catalog = await opened()
    team = catalog.group("team")
    assert set(team.pools) == {"shop/demo", "lab/demo"}
    assert set(team.aliases) == {*said("shop").aliases, *said("lab").aliases}
    assert team.total == Quota(100)
    assert [await reserved(catalog, each) for each in ("shop", "lab")] == [5, 7]
    for namespace, size in (("shop", 5), ("lab", 7)):
        assert await catalog.group_of(team, namespace) == said(namespace, reserved=size, total=Quota(100))

    # A namespace that no longer says anything loses neither blocks nor instances.
    await catalog.put_group(InstanceGroup("team", ("disk",), total=Quota(100)), "shop")
    catalog = await opened()
    assert catalog.group("team") == said("lab", reserved=7, total=Quota(100))
    assert [await reserved(catalog, each) for each in ("shop", "lab")] == [0, 7]
    assert set(catalog.instances) == {"of-shop", "of-lab"}


async def test_who_speaks_for_all_takes_over_and_who_speaks_for_one_after_that(catalog: Catalog, opened: Open) -> None:
    for namespace in ("shop", "lab"):
        await catalog.put_group(said(namespace), namespace)
    await catalog.put_group(said("shop"))
    catalog = await opened()
    assert catalog.group("team") == said("shop")
    both = InstanceGroup(
        "team", ("disk",), pools=("lab/demo", "shop/demo", "shop/gone"), aliases=("lab.demo", "shop.gone")
    )
    await catalog.put_group(both)
    await catalog.put_group(said("shop"), "shop")
    assert set((await opened()).group("team").pools) == {"lab/demo", "shop/demo"}


async def test_two_namespaces_speak_at_once(catalog: Catalog) -> None:
    names = [f"ns{number}" for number in range(20)]
    await asyncio.gather(*(catalog.put_group(said(name), name) for name in names))
    assert set(catalog.group("team").pools) == {f"{name}/demo" for name in names}


async def test_two_managers_are_spoken_to_at_once(redis_store: Callable[[], IndexBackend]) -> None:
    indices = [MetaIndex(redis_store(), spaces.codec, IndexSettings()) for _ in range(2)]
    catalogs = [Catalog(index) for index in indices]
    for index, catalog in zip(indices, catalogs, strict=True):
        await index.start()
        await catalog.put_storage(Storage("disk", "FileSystem"))
    names = [f"ns{number}" for number in range(20)]
    said_to = [(catalogs[number % 2], name) for number, name in enumerate(names)]
    await asyncio.gather(*(catalog.put_group(said(name), name) for catalog, name in said_to))
    await catalogs[0].load()
    assert set(catalogs[0].group("team").pools) == {f"{name}/demo" for name in names}
    for index in indices:
        await index.close()


async def test_pools_of_one_name_in_two_namespaces_may_be_in_two_groups(catalog: Catalog) -> None:
    await catalog.put_group(said("shop"), "shop")
    other = msgspec.structs.replace(said("lab"), name="other")
    await catalog.put_group(other, "lab")
    assert catalog.group("team") == said("shop")
    assert catalog.group_meant(pool_group("lab", "demo")) == other
    with pytest.raises(Refused, match=r"the group other already has the alias lab\.demo"):
        await catalog.put_group(said("lab"), "lab")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"pools": ("shop/demo", "lab/demo")}, "the pool lab/demo"),
        ({"pools": ("shop-b/demo",)}, "the pool shop-b/demo"),
        ({"aliases": ("lab.demo",)}, r"the alias lab\.demo"),
        ({"instances": {"of-lab": {}}}, "the instance of-lab"),
        ({"instances": {"by-hand": {}}}, "the instance by-hand"),
    ],
)
async def test_no_namespace_speaks_of_another_s_by_mistake(catalog: Catalog, fields: dict[str, Any], what: str) -> None:
    await catalog.put_group(said("lab"), "lab")
    await catalog.register_instance(instance("lab"))
    await catalog.register_instance(instance("", "by-hand"))
    before = catalog.group("team")
    with pytest.raises(
        ValueError, match=f"settings for namespace shop refer to {what}, which is not in that namespace"
    ):
        await catalog.put_group(said("shop", **fields), "shop")
    assert catalog.group("team") == before


async def test_what_several_are_promised_must_fit_in_all(catalog: Catalog) -> None:
    await catalog.put_group(said("shop"), "shop")
    for namespace in ("shop", "lab"):
        await catalog.register_instance(instance(namespace))
    await catalog.put_group(said("shop", reserved=6, total=Quota(10)), "shop")
    with pytest.raises(ValueError, match="instances and zones reserve 11 bytes, but the limit of the total is 10"):
        await catalog.put_group(said("lab", reserved=5, total=Quota(10)), "lab")
    assert [await reserved(catalog, each) for each in ("shop", "lab")] == [6, 0]


async def test_what_was_promised_to_an_instance_that_is_gone_goes(catalog: Catalog) -> None:
    await catalog.put_group(said("shop"), "shop")
    await catalog.register_instance(instance("shop"))
    await catalog.put_group(said("shop", reserved=6, total=Quota(10)), "shop")
    await catalog.forget_instance(catalog.instances["of-shop"])
    assert "of-shop" in (await catalog.group_of(catalog.group("team"), "lab")).instances
    await catalog.put_group(said("lab", total=Quota(10)), "lab")
    assert catalog.group("team").instances == {}
    assert await reserved(catalog, "shop") == 0


async def test_a_group_from_before_namespaces_were_distinguished_reads_well(catalog: Catalog) -> None:
    kept = '{"name":"team","storages":["disk"],"pools":["lab/demo","shop/old"],"aliases":["lab.demo","shop.old","x-0"]}'
    await catalog._index.put(spaces.GROUPS, {b"team": msgspec.json.decode(kept, type=InstanceGroup)})
    await catalog.load()
    await catalog.put_group(said("shop"), "shop")
    assert catalog.group("team").pools == ("lab/demo", "shop/demo")
    assert catalog.group("team").aliases == ("lab.demo", "x-0", *said("shop").aliases)


NAMESPACES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
POOLS = st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(NAMESPACES, NAMESPACES, POOLS, st.text(min_size=1, max_size=253))
def test_the_name_of_a_group_shows_its_namespace(namespace: str, other: str, pool: str, tenant: str) -> None:
    for name in (pool_group(namespace, pool), zone_group(namespace, pool, tenant)):
        assert is_group_of(name, namespace)
        assert is_group_of(name, other) == (namespace == other)


GROUPS = st.lists(st.sampled_from(["a/x", "a/y", "b/x", "c/x", "hand"]), unique=True)


@given(GROUPS, GROUPS)
def test_what_is_said_is_what_is_seen_and_the_rest_stays(before: list[str], now: list[str]) -> None:
    known = InstanceGroup("team", ("disk",), pools=tuple(before))
    mine = InstanceGroup("team", ("disk",), pools=tuple(pool for pool in now if pool.startswith("a/")))
    made = shared(known, mine, "a", {})
    assert of_namespace(made, "a", {}) == mine
    assert {*made.pools} - {*mine.pools} == {pool for pool in before if not pool.startswith("a/")}
    assert shared(made, mine, "a", {}) == made


def test_an_administrator_of_one_namespace_speaks_for_that_one(tmp_path: Path) -> None:
    (tmp_path / "accounts").write_text(json.dumps({"shop/operator": {"admin": True, "namespace": "shop"}}))
    caller = read_service_accounts(tmp_path / "accounts")["shop/operator"]
    assert caller == Caller("shop/operator", is_admin=True, namespace="shop")
    caller.require_namespace("shop")
    for other, words in (("lab", "the namespace lab"), ("", "all namespaces")):
        with pytest.raises(
            Denied, match=f"shop/operator may make changes for the namespace shop only, not for {words}"
        ):
            caller.require_namespace(other)
    Caller("root", is_admin=True).require_namespace("")


@pytest.mark.parametrize(
    "known", [{"namespace": "shop"}, {"pool": "a/b", "namespace": "shop"}, {"admin": True, "namespace": "A/b"}]
)
def test_a_namespace_that_says_nothing_is_refused(tmp_path: Path, known: dict[str, Any]) -> None:
    (tmp_path / "file").write_text(json.dumps({"shop/operator": known}))
    for read in (read_service_accounts, StaticTokens):
        with pytest.raises(ValueError, match="namespace"):
            read(tmp_path / "file")
