"""How the console shows KVStorages and KVCacheGroups, and how often it lists them."""

import asyncio
from typing import Any

import pytest

from tenantzone_operator.cache_manager.declared import read_group, read_storage
from tenantzone_operator.console.showing_storages import MAX_ROWS, show_storages
from tenantzone_operator.console.storages import FRESH_SECONDS, LiveStorages, Stored
from tenantzone_operator.kube.rest import RestError
from tests.console.declared import GIB, Cluster, condition, group, storage


def shown(*, storages: Any = (), groups: Any = ()) -> dict[str, Any]:
    return show_storages(Stored(tuple(map(read_storage, storages)), tuple(map(read_group, groups))))


def test_a_storage_is_shown_with_its_health_and_its_limits():
    (row,) = shown(storages=[storage("disk", held=3 * GIB, capacity="10Gi", watermark="85%")])["storages"]
    assert row == {
        "name": "disk",
        "type": "FileSystem",
        "place": "/mnt/disk",
        "ready": {"status": "True", "reason": "Healthy", "message": ""},
        "healthy": {"status": "True", "reason": "Healthy", "message": ""},
        "held": 3 * GIB,
        "limit": 10 * GIB,
        "watermarkPercent": 85,
    }


def test_a_group_is_shown_with_its_quotas_by_type_and_the_floors_of_its_zones():
    acme = {"namespace": "shop", "name": "acme", "types": [{"type": "FileSystem", "reserved": "1Gi", "limit": "4Gi"}]}
    reported = {
        "held": 5 * GIB,
        "instances": 2,
        "evictedBlocks": 7,
        "types": [{"type": "FileSystem", "held": 3 * GIB}, {"type": "S3", "held": 2 * GIB}],
        "zones": [{"namespace": "shop", "name": "acme", "type": "FileSystem", "held": GIB, "reserved": GIB}],
    }
    limits = [{"type": "FileSystem", "limit": "4Gi", "watermark": "50%"}]
    whole = {"zones": [acme], "types": limits, "quota": {"limit": "8Gi", "watermark": "90%"}, "ttl": "1h"}
    found = shown(groups=[group("team", reported=reported, evictionPolicy="LFU", **whole)])
    (row,) = found["groups"]
    assert (row["held"], row["limit"], row["watermarkPercent"]) == (5 * GIB, 8 * GIB, 90)
    assert (row["policy"], row["ttlSeconds"], row["instances"], row["evictedBlocks"]) == ("LFU", 3600, 2, 7)
    assert found["types"] == [
        {"group": "team", "type": "FileSystem", "held": 3 * GIB, "limit": 4 * GIB, "watermarkPercent": 50},
        {"group": "team", "type": "S3", "held": 2 * GIB, "limit": None, "watermarkPercent": None},
    ]
    zone = {"namespace": "shop", "name": "acme", "group": "team", "type": "FileSystem"}
    assert found["zones"] == [zone | {"held": GIB, "reserved": GIB, "limit": 4 * GIB}]


def test_what_was_not_checked_yet_is_unknown_and_not_nothing():
    acme = {"namespace": "shop", "name": "acme", "types": [{"type": "S3", "reserved": "1Gi"}]}
    bare = group("team", zones=[acme]) | {"status": {}}
    found = shown(storages=[storage("disk") | {"status": {}}], groups=[bare])
    assert (found["storages"][0]["held"], found["storages"][0]["ready"]) == (None, {})
    assert (found["groups"][0]["held"], found["groups"][0]["ready"]) == (None, {})
    assert (found["zones"][0]["held"], found["zones"][0]["reserved"]) == (None, GIB)


def test_what_a_group_declares_and_can_not_have_is_shown_with_the_reason():
    refused = condition("Ready", "False", "Invalid", "quota.limit must be 1 or more")
    (row,) = shown(groups=[group("team", ready=refused, quota={"limit": 0})])["groups"]
    assert (row["limit"], row["ready"]["message"]) == (None, "quota.limit must be 1 or more")


def test_more_than_a_page_can_bear_are_counted():
    found = shown(storages=[storage(f"disk-{number}") for number in range(MAX_ROWS + 5)])
    assert (len(found["storages"]), found["inAll"]["storages"]) == (MAX_ROWS, MAX_ROWS + 5)


async def test_however_many_look_the_api_server_is_asked_once_and_again_when_that_is_old():
    cluster, now = Cluster(), [0.0]
    live = LiveStorages(cluster.list_stored, lambda: now[0])
    await asyncio.gather(*(live.look() for _ in range(10)))
    assert cluster.listings == 1
    now[0] += FRESH_SECONDS
    await asyncio.gather(*(live.look() for _ in range(10)))
    assert cluster.listings == 2


@pytest.mark.parametrize("failure", [RestError(403, "not for you"), TimeoutError()])
async def test_what_was_listed_stays_while_the_api_server_does_not_answer(failure: Exception):
    cluster, now = Cluster(), [0.0]
    cluster.declare(storages=[storage("disk")])
    live = LiveStorages(cluster.list_stored, lambda: now[0])
    await live.look()
    assert live.problem == ""
    cluster.failure, now[0] = failure, FRESH_SECONDS
    await live.look()
    assert [each.meta.name for each in live.stored.storages] == ["disk"]
    assert live.problem == (str(failure) or "TimeoutError")
    cluster.failure, now[0] = None, 2 * FRESH_SECONDS
    await live.look()
    assert live.problem == ""
