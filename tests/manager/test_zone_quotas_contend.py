"""Two managers over one Redis that say something of a zone, and of its instances, at a time."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog, NotFound, Refused
from tenantzone_manager.core.quota import UNLIMITED
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Quota
from tenantzone_manager.index.backend import Commit, IndexBackend
from tenantzone_manager.index.meta_index import IndexSettings, MetaIndex
from tests.manager.zones import ACME, QUOTA, WHERE, committed, instance, members, quota_of, started, team


@pytest.fixture
async def replicas(redis_store: Callable[[], IndexBackend]) -> AsyncIterator[list[Catalog]]:
    """Of two managers over one index."""
    indices = [MetaIndex(redis_store(), spaces.codec, IndexSettings()) for _ in range(2)]
    yield [await started(index) for index in indices]
    for index in indices:
        await index.close()


async def test_two_managers_that_register_and_report_at_a_time_miss_no_instance(replicas: list[Catalog]) -> None:
    await replicas[0].put_group(team(total=Quota(1000)))
    await replicas[1].load()
    there: list[Instance] = []
    draw = random.Random(7)
    for round_ in range(60):
        reserved = draw.choice([0, 60, 240])
        new = [instance(10 * round_ + number) for number in range(draw.randrange(3))]
        gone = draw.sample(there, min(max(len(there) - 1, 0), 2))
        calls = [
            *(draw.choice(replicas).register_instance(each) for each in new),
            *(draw.choice(replicas).forget_instance(each) for each in gone),
            draw.choice(replicas).put_group(
                team(total=Quota(1000), zones={ACME: {WHERE: InstanceQuota(reserved, 240)}})
            ),
        ]
        draw.shuffle(calls)
        await asyncio.gather(*calls)
        there = [each for each in (*there, *new) if each not in gone]
        if not there:
            continue
        part = (reserved // len(there), 240 // len(there))
        assert [await quota_of(replicas[0], each.name) for each in there] == [part] * len(there)
        assert [await quota_of(replicas[0], each.name) for each in gone] == [(0, UNLIMITED)] * len(gone)
        assert await committed(replicas[0]) == part[0] * len(there)


def just_before_it_commits(catalog: Catalog, other: Callable[[], Awaitable[object]]) -> None:
    """Have another manager do something between what the next change reads and what it writes."""
    commit, done = catalog._index.backend.commit, []

    async def commit_after(change: Commit) -> None:
        if not done:
            done.append(True)
            await other()
        await commit(change)

    catalog._index.backend.commit = commit_after  # type: ignore[method-assign]


async def test_who_says_something_of_a_zone_misses_no_first_instance(replicas: list[Catalog]) -> None:
    here, there = replicas
    await here.put_group(team())
    await there.load()
    just_before_it_commits(here, lambda: there.register_instance(instance(1)))
    await here.put_group(team(total=Quota(1000), zones={ACME: QUOTA}))
    assert await quota_of(here, instance(1).name) == (60, 120)
    assert await committed(here) == 60


async def test_who_registers_misses_nothing_that_is_said_of_the_zone(replicas: list[Catalog]) -> None:
    here, there = replicas
    await here.put_group(team())
    await there.load()
    just_before_it_commits(there, lambda: here.put_group(team(zones={ACME: QUOTA})))
    await there.register_instance(instance(1))
    assert await quota_of(there, instance(1).name) == (60, 120)


async def test_one_that_leaves_and_comes_back_while_a_group_is_said_is_counted(replicas: list[Catalog]) -> None:
    here, there = replicas
    await here.put_group(team(zones={ACME: QUOTA}))
    await there.load()
    await there.register_instance(instance(1))
    get, done = here._index.backend.get, []

    async def get_while_it_is_away(space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        if space != spaces.INSTANCES or done:
            return await get(space, keys)
        done.append(True)
        await there.forget_instance(instance(1))
        found = await get(space, keys)
        await there.register_instance(instance(1))
        return found

    here._index.backend.get = get_while_it_is_away  # type: ignore[method-assign]
    await here.put_group(team(total=Quota(1000), zones={ACME: QUOTA}))
    assert done
    assert await quota_of(here, instance(1).name) == (60, 120)


@pytest.mark.parametrize("recorded", [True, False])
async def test_quotas_of_a_zone_count_no_instance_that_has_left(replicas: list[Catalog], recorded: bool) -> None:
    here, there = replicas
    await here.put_group(team())
    await here.register_instance(instance(1))
    await there.load()
    if not recorded:
        await here._index.delete(spaces.MEMBERS, [spaces.members_of("team", ACME).key])
    just_before_it_commits(here, lambda: there.forget_instance(instance(1)))
    await here.put_group(team(zones={ACME: QUOTA}))
    assert await quota_of(here, instance(1).name) == (0, UNLIMITED)
    assert [key async for key in members(here)] == []
    await here.register_instance(instance(2))
    assert await quota_of(here, instance(2).name) == (60, 120)


async def test_a_group_in_which_another_has_registered_an_instance_stays(replicas: list[Catalog]) -> None:
    here, there = replicas
    await here.put_group(team(zones={ACME: QUOTA}))
    await there.load()
    await there.register_instance(instance(1))
    with pytest.raises(Refused, match="group team has instances"):
        await here.remove_group("team")
    await here.forget_instance(instance(1))
    await here.remove_group("team")
    assert await committed(there) == 0


def just_before_it_reads(catalog: Catalog, where: str, other: Callable[[], Awaitable[object]]) -> None:
    """Have another manager do something just before the next change reads this space; it has read others by chance."""
    get, done = catalog._index.backend.get, []

    async def get_after(space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        if space == where and not done:
            done.append(True)
            await other()
        return await get(space, keys)

    catalog._index.backend.get = get_after  # type: ignore[method-assign]


@pytest.mark.parametrize("where", [spaces.GROUPS, spaces.INSTANCES, spaces.MEMBERS])
@pytest.mark.parametrize("does", ["forgets", "says"])
async def test_what_comes_between_two_reads_of_a_change_is_not_lost(
    replicas: list[Catalog], where: str, does: str
) -> None:
    here, there = replicas
    await here.put_group(team(zones={ACME: QUOTA}))
    await there.load()
    # An instance that is gone, and this replica has not heard so.
    here.instances[instance(1).name] = instance(1)
    just_before_it_reads(here, where, lambda: there.register_instance(instance(1)))
    if does == "forgets":
        await here.forget_instance(instance(1))
    else:
        await here.put_group(team(total=Quota(1000), zones={ACME: QUOTA}))
    await there.load()
    is_there = instance(1).name in there.instances
    assert is_there or does == "forgets"
    assert await quota_of(there, instance(1).name) == ((60, 120) if is_there else (0, UNLIMITED))
    assert len([key async for key in members(there)]) == is_there
    assert await committed(there) == 60


async def test_a_group_goes_with_all_that_was_said_or_not_at_all(replicas: list[Catalog]) -> None:
    here, there = replicas
    await here.put_group(team(zones={ACME: QUOTA}))
    await there.load()
    just_before_it_commits(here, lambda: there.register_instance(instance(1)))
    with pytest.raises(Refused, match=f"group team has instances: {instance(1).name}"):
        await here.remove_group("team")
    assert await quota_of(there, instance(1).name) == (60, 120)


async def test_zones_that_are_said_while_a_group_goes_stay_or_go_with_it(replicas: list[Catalog]) -> None:
    here, there = replicas
    await here.put_group(team())
    await there.load()
    just_before_it_commits(here, lambda: there.put_group(team(zones={ACME: QUOTA})))
    await here.remove_group("team")
    assert await committed(there) == 0


async def test_another_instance_of_the_name_stays(replicas: list[Catalog]) -> None:
    here, there = replicas
    await here.put_group(team(zones={ACME: QUOTA}))
    await here.put_group(InstanceGroup("other", ("disk",)))
    await there.load()
    before = instance(1, group="other")
    await here.register_instance(before)
    await there.forget_instance(before)
    await there.register_instance(instance(1))
    await here.forget_instance(before)
    await there.load()
    assert there.instances == {instance(1).name: instance(1)}
    assert await quota_of(there, instance(1).name) == (60, 120)


async def test_an_instance_of_a_group_that_was_removed_meanwhile_is_not_registered(replicas: list[Catalog]) -> None:
    await replicas[0].put_group(team())
    await replicas[1].load()
    await replicas[0].remove_group("team")
    with pytest.raises(NotFound, match="there is no instance group team"):
        await replicas[1].register_instance(instance(1))
