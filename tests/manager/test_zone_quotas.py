"""What a group says of a zone holds for all of its instances together, from the first byte on, over each store."""

from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core import books
from tenantzone_manager.core.promises import Members, group_terms, zone_of, zone_terms
from tenantzone_manager.core.quota import UNLIMITED
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Quota, Spec
from tenantzone_manager.index.backend import Commit, IndexBackend, IndexUnavailable
from tenantzone_manager.index.meta_index import IndexSettings, MetaIndex
from tests.manager.playing import INSTANCE, SIZE, Playing, prompt
from tests.manager.zones import ACME, POOL, QUOTA, WHERE, committed, instance, members, quota_of, started, team


@pytest.fixture
async def catalog(store: Callable[[], IndexBackend]) -> AsyncIterator[Catalog]:
    index = MetaIndex(store(), spaces.codec, IndexSettings())
    yield await started(index)
    await index.close()


async def test_an_instance_is_bounded_in_the_moment_in_which_it_is_there(catalog: Catalog) -> None:
    await catalog.put_group(team(zones={ACME: QUOTA}))
    first, second = instance(1), instance(2)
    await catalog.register_instance(first)
    assert await quota_of(catalog, first.name) == (60, 120)
    await catalog.register_instance(second)
    assert [await quota_of(catalog, each.name) for each in (first, second)] == [(30, 60), (30, 60)]
    assert await committed(catalog) == 60
    # Again in the same way is no third one.
    await catalog.register_instance(second)
    await catalog.forget_instance(first)
    assert await quota_of(catalog, first.name) == (0, UNLIMITED)
    assert await quota_of(catalog, second.name) == (60, 120)
    await catalog.forget_instance(second)
    assert await quota_of(catalog, second.name) == (0, UNLIMITED)
    assert [key async for key in members(catalog)] == []


async def test_what_a_zone_is_promised_is_kept_while_it_has_no_instance(catalog: Catalog) -> None:
    await catalog.put_group(team(zones={ACME: QUOTA}))
    assert await committed(catalog) == 60
    await catalog.register_instance(instance(1))
    assert await committed(catalog) == 60
    await catalog.forget_instance(instance(1))
    assert await committed(catalog) == 60
    await catalog.put_group(team(zones={ACME: {WHERE: InstanceQuota(reserved=7)}}))
    assert await committed(catalog) == 7
    await catalog.put_group(team())
    assert await committed(catalog) == 0
    await catalog.put_group(team(zones={ACME: QUOTA}))
    await catalog.remove_group("team")
    assert await committed(catalog) == 0


async def test_a_flood_takes_nothing_of_a_zone_that_comes_later(playing: Playing) -> None:
    await playing.group(limit=4 * SIZE, zones={ACME: {WHERE: InstanceQuota(reserved=3 * SIZE)}})
    burst, late = (replace(INSTANCE, name=name, pool=POOL) for name in ("burst.1", "acme.1"))
    await playing.manager.catalog.register_instance(burst)
    assert len((await playing.write(prompt("flood", 4), burst)).locations) == 1
    await playing.manager.catalog.register_instance(late)
    assert len((await playing.write(prompt("session", 4), late)).locations) == 3


async def test_others_instances_are_no_sisters(catalog: Catalog) -> None:
    await catalog.put_group(team(zones={ACME: QUOTA}))
    await catalog.put_group(InstanceGroup("other", ("disk",)))
    mine = instance(1)
    strangers = [
        instance(2, "burst"),
        instance(3, pool="shop/code"),
        instance(4, pool="lab/chat"),
        instance(5, group="other"),
        instance(6, pool=""),
        Instance("acme", "team", 16, (Spec("tp0", 1),), pool=POOL),
    ]
    for each in (*strangers, mine):
        await catalog.register_instance(each)
    assert await quota_of(catalog, mine.name) == (60, 120)
    for each in strangers:
        assert await quota_of(catalog, each.name) == (0, UNLIMITED)


async def test_what_is_said_later_is_for_the_instances_that_are_there(catalog: Catalog) -> None:
    both = [instance(1), instance(2)]
    await catalog.put_group(team())
    for each in both:
        await catalog.register_instance(each)
    await catalog.put_group(team(zones={ACME: QUOTA}))
    assert [await quota_of(catalog, each.name) for each in both] == [(30, 60), (30, 60)]
    # One that has quotas of its own takes no part, and what is said no longer is lifted.
    own = {both[0].name: {WHERE: InstanceQuota(limit=7)}}
    await catalog.put_group(team(zones={ACME: QUOTA}, instances=own))
    assert [await quota_of(catalog, each.name) for each in both] == [(0, 7), (60, 120)]
    await catalog.put_group(team())
    assert [await quota_of(catalog, each.name) for each in both] == [(0, UNLIMITED), (0, UNLIMITED)]
    assert await committed(catalog) == 0


async def test_a_list_of_members_that_differs_from_the_instances_is_corrected(catalog: Catalog) -> None:
    old, gone, new = (instance(number) for number in range(3))
    await catalog.put_group(team(zones={ACME: QUOTA}))
    for each in (old, gone, new):
        await catalog.register_instance(each)
    await catalog._index.put(spaces.MEMBERS, {spaces.members_of("team", ACME).key: (gone.name, new.name)})
    await catalog._index.delete(spaces.INSTANCES, [gone.name.encode()])
    await catalog.load()
    await catalog.mend_zones()
    assert [await quota_of(catalog, each.name) for each in (old, new)] == [(30, 60), (30, 60)]
    assert await quota_of(catalog, gone.name) == (0, UNLIMITED)
    assert await committed(catalog) == 60
    before = await catalog._index.get(spaces.GROUPS, [b"team"])
    await catalog.load()
    await catalog.mend_zones()
    assert await catalog._index.get(spaces.GROUPS, [b"team"]) == before, "nothing is left to fix"


async def test_zones_are_said_of_all_instances_whatever_is_recorded(catalog: Catalog) -> None:
    old, new = instance(1), instance(2)
    await catalog.put_group(team(instances={old.name: QUOTA}))
    await catalog.register_instance(old)
    await catalog._index.delete(spaces.MEMBERS, [spaces.members_of("team", ACME).key])
    await catalog.register_instance(new)
    await catalog.put_group(team(zones={ACME: QUOTA}))
    assert [await quota_of(catalog, each.name) for each in (old, new)] == [(30, 60), (30, 60)]


async def test_a_manager_that_leads_mends(playing: Playing) -> None:
    catalog = playing.manager.catalog
    await playing.group(zones={ACME: QUOTA})
    await catalog.register_instance(instance(1))
    await catalog._index.delete(spaces.MEMBERS, [spaces.members_of("team", ACME).key])
    await catalog.register_instance(instance(2))
    assert await quota_of(catalog, instance(2).name) == (60, 120)
    await catalog.load()
    await playing.manager._reclaim_if_leader()
    assert [await quota_of(catalog, instance(number).name) for number in (1, 2)] == [(30, 60), (30, 60)]


async def test_what_is_said_for_one_namespace_leaves_zones_of_others(catalog: Catalog) -> None:
    theirs = instance(2, pool="lab/chat")
    for namespace in ("shop", "lab"):
        said = InstanceGroup("team", ("disk",), (f"{namespace}/chat",), zones={f"{namespace}/chat/acme": QUOTA})
        await catalog.put_group(said, namespace)
        assert await catalog.group_of(catalog.group("team"), namespace) == said
    for each in (instance(1), theirs):
        await catalog.register_instance(each)
    await catalog.put_group(InstanceGroup("team", ("disk",), (POOL,)), "shop")
    assert [await quota_of(catalog, each.name) for each in (instance(1), theirs)] == [(0, UNLIMITED), (60, 120)]
    with pytest.raises(ValueError, match="the zone lab/chat/acme, which is not in that namespace"):
        await catalog.put_group(InstanceGroup("team", ("disk",), (POOL,), zones={"lab/chat/acme": QUOTA}), "shop")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"zones": {ACME: {WHERE: InstanceQuota(5, 4)}}}, f"zone {ACME} reserves more of {WHERE} than its limit"),
        ({"zones": {f"{ACME}\n": QUOTA}}, "is not a valid zone name"),
        ({"zones": {"acme": QUOTA}}, "'acme' is not a valid zone name; write NAMESPACE/POOL/OWNER"),
        (
            {"zones": {ACME: {where: InstanceQuota(2**62) for where in "ABC"}}},
            "instances and zones together reserve more than",
        ),
        (
            {"zones": {ACME: QUOTA}, "total": Quota(59)},
            "instances and zones reserve 60 bytes, but the limit of the total is 59",
        ),
        ({"zones": {ACME: QUOTA}, "types": {WHERE: Quota(59)}}, f"instances and zones reserve 60 bytes of {WHERE}"),
    ],
)
async def test_what_can_t_be_kept_is_refused(catalog: Catalog, fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        await catalog.put_group(team(**fields))


@pytest.mark.parametrize("does", ["registers", "forgets", "says", "removes"])
async def test_who_gets_no_answer_reads_again_what_there_is(catalog: Catalog, does: str) -> None:
    await catalog.put_group(team(zones={ACME: QUOTA}))
    if does == "forgets":
        await catalog.register_instance(instance(1))
    await catalog.load()
    commit = catalog._index.backend.commit

    async def commit_and_lose_the_answer(change: Commit) -> None:
        await commit(change)
        raise IndexUnavailable("no answer came")

    catalog._index.backend.commit = commit_and_lose_the_answer  # type: ignore[method-assign]
    calls = {
        "registers": lambda: catalog.register_instance(instance(1)),
        "forgets": lambda: catalog.forget_instance(instance(1)),
        "says": lambda: catalog.put_group(team(total=Quota(1000))),
        "removes": lambda: catalog.remove_group("team"),
    }
    with pytest.raises(IndexUnavailable):
        await calls[does]()
    assert catalog.is_stale
    await catalog.load()
    assert set(catalog.instances) == ({instance(1).name} if does == "registers" else set())
    assert set(catalog.groups) == (set() if does == "removes" else {"team"})
    assert not catalog.is_stale


async def test_what_changes_while_all_is_read_is_read_again(catalog: Catalog) -> None:
    await catalog.put_group(team())
    scan, done = catalog._index.backend.scan, []

    async def scan_and_hear_late(space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        found = await scan(space, cursor, count)
        if space == spaces.INSTANCES and not done:
            done.append(True)
            await catalog.register_instance(instance(1))
        return found

    catalog._index.backend.scan = scan_and_hear_late  # type: ignore[method-assign]
    await catalog.load()
    assert catalog.is_stale
    await catalog.load()
    assert (set(catalog.instances), catalog.is_stale) == ({instance(1).name}, False)


def test_a_zone_is_identified_by_who_registers_and_by_the_name() -> None:
    assert zone_of(instance(1)) == ACME
    assert zone_of(instance(1, tenant="A tenant")).startswith(f"{POOL}/x-")
    assert zone_of(instance(1, pool="")) == zone_of(Instance("acme", "team", 16, (Spec("tp0", 1),), pool=POOL)) == ""


quotas = st.builds(
    lambda reserved, more: InstanceQuota(reserved, None if more is None else reserved + more),
    st.integers(0, 1000),
    st.none() | st.integers(0, 1000),
)


@given(
    quotas=st.dictionaries(st.sampled_from([WHERE, "S3"]), quotas),
    names=st.lists(st.integers(0, 30), unique=True, max_size=7),
    own=st.sets(st.integers(0, 30)),
)
def test_parts_are_equal_and_together_never_more(
    quotas: dict[str, InstanceQuota], names: list[int], own: set[int]
) -> None:
    by_themselves = {str(number): {WHERE: InstanceQuota(1, 2)} for number in own}
    group = InstanceGroup("team", ("disk",), zones={ACME: quotas}, instances=by_themselves)
    reported: Members = {ACME: [str(number) for number in names]}
    sharing = [str(number) for number in names if number not in own]
    made = zone_terms(group, ACME, reported[ACME])
    unclaimed = {books.chain_until_claimed("team", ACME, where): quota.reserved for where, quota in quotas.items()}
    kept = {each.chain: each.reserved for each in made if each.chain in unclaimed}
    assert kept == (dict.fromkeys(unclaimed, 0) if sharing else unclaimed)
    of_instances = [each for each in made if each.chain not in unclaimed]
    assert sorted(each.chain[0] for each in of_instances) == sorted(
        books.instance_account(name, where) for name in sharing for where in quotas
    )
    for where, quota in quotas.items():
        parts = [each for each in of_instances if each.chain[0].endswith(f"/{where}")]
        assert len({(each.reserved, each.limit) for each in parts}) <= 1
        for each in parts:
            assert quota.reserved - len(parts) < len(parts) * each.reserved <= quota.reserved
            assert each.limit == UNLIMITED if quota.limit is None else len(parts) * each.limit <= quota.limit
    assert [each for each in group_terms(group, reported) if each in made] == made
