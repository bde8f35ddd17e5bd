"""The calls over HTTP and over gRPC: the same answers, and the same refusals."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tenantzone_manager.core.quota import Account
from tenantzone_manager.events.reading import Selection, Tally, select
from tenantzone_manager.index.backend import Commit, IndexUnavailable
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.server.access import Caller, service_accounts
from tenantzone_manager.server.messages import MAX_KEYS, MAX_TOKENS
from tenantzone_manager.server.service import CALLS
from tests.manager.asking import Client, Refusal, over_grpc, over_http
from tests.manager.playing import eventually

INSTANCE = {"name": "chat-1", "group": "team", "block_size": 2, "specs": [{"name": "tp0", "size": 4096}]}
KEYS = [b"\x00\x01", b"\x02", b"\xff"]


@pytest.fixture(params=["http", "grpc"])
async def ask(request: pytest.FixtureRequest, ports: tuple[int, int]) -> AsyncIterator[Client]:
    async with over_http(ports[0]) if request.param == "http" else over_grpc(ports[1]) as client:
        yield client


@pytest.fixture
async def team(ask: Client, tmp_path: Path) -> None:
    """A storage, a group and an instance of the pool ml/chat."""
    storage = {"name": "disk", "type": "FileSystem", "options": {"root": str(tmp_path)}}
    answer = await ask("RegisterStorage", "root", storage=storage)
    assert answer["available"]
    group = {"name": "team", "storages": ["disk"], "pools": ["ml/chat"], "total": {"limit": 4 * 4096}}
    await ask("PutInstanceGroup", "root", group=group)
    answer = await ask("RegisterInstance", "chat", instance=INSTANCE)
    assert answer["instance"]["pool"] == "ml/chat"


async def write(ask: Client, **prompt: Any) -> dict[str, Any]:
    started = await ask("StartWriteCache", "chat", instance_id="chat-1", **prompt)
    return await ask(
        "FinishWriteCache", "chat", instance_id="chat-1", write_id=started["write_id"], block_keys=prompt["block_keys"]
    )


@pytest.mark.usefixtures("team")
async def test_what_is_written_is_found(ask: Client, tmp_path: Path) -> None:
    asked = {"instance_id": "chat-1", "block_keys": KEYS}
    started = await ask("StartWriteCache", "chat", **asked)
    assert [block["standing"] for block in started["blocks"]] == ["write"] * 3
    uri = started["blocks"][1]["location"]["specs"][0]["uri"]
    assert uri.startswith(f"file://{tmp_path}/objects/team/chat-1/02/02-")
    assert uri.endswith(".tp0?size=4096")
    nothing = await ask("GetCacheLocation", "chat", **asked)
    assert nothing.get("matched_blocks", 0) == 0
    ended = await ask("FinishWriteCache", "chat", write_id=started["write_id"], failed_blocks=[2], **asked)
    assert ended["endings"] == ["serving", "serving", "failed"]
    found = await ask("GetCacheLocation", "chat", **asked)
    assert found["matched_blocks"] == 2
    assert found["lease_seconds"] == 10
    assert found["blocks"] == [{"locations": [block["location"]]} for block in started["blocks"][:2]]
    again = await ask("GetCacheLocation", "chat", **asked)
    assert again == found
    by_key = await ask("GetCacheLocation", "chat", instance_id="chat-1", block_keys=KEYS[1:], query_type="key")
    assert by_key["matched_blocks"] == 1
    assert [bool(block.get("locations")) for block in by_key["blocks"]] == [True, False]


@pytest.mark.usefixtures("team")
async def test_tokens_name_the_blocks_as_well(ask: Client) -> None:
    tokens = {"instance_id": "chat-1", "token_ids": [5, 6, 7, 8, 9]}
    started = await ask("StartWriteCache", "chat", **tokens)
    assert len(started["blocks"]) == 2
    ended = await ask("FinishWriteCache", "chat", write_id=started["write_id"], blocks=[0, 1], **tokens)
    assert ended["endings"] == ["serving", "serving"]
    found = await ask("GetCacheLocation", "chat", instance_id="chat-1", token_ids=[5, 6, 7, 8, 1, 1])
    assert found["matched_blocks"] == 2
    window = await ask("GetCacheLocation", "chat", query_type="window", window=1, **tokens)
    assert (window["first_block"], window["matched_blocks"]) == (1, 2)
    removed = await ask("RemoveCache", "chat", first_block=1, **tokens)
    assert removed["blocks"] == 1
    found = await ask("GetCacheLocation", "chat", instance_id="chat-1", token_ids=[5, 6, 7, 8])
    assert found["matched_blocks"] == 1


@pytest.mark.usefixtures("team")
async def test_of_blocks_named_by_key_only_those_that_are_said_to_be_written_serve(ask: Client) -> None:
    asked = {"instance_id": "chat-1", "block_keys": KEYS}
    started = await ask("StartWriteCache", "chat", **asked)
    ending = {"write_id": started["write_id"], **asked}
    first = await ask("FinishWriteCache", "chat", blocks=[0], **ending)
    assert first["endings"] == ["serving"]
    found = await ask("GetCacheLocation", "chat", **asked)
    assert found["matched_blocks"] == 1
    with pytest.raises(Refusal, match="there is no block 3; the request names 3 blocks"):
        await ask("FinishWriteCache", "chat", blocks=[3], **ending)
    rest = await ask("FinishWriteCache", "chat", blocks=[1, 2], failed_blocks=[2], **ending)
    assert rest["endings"] == ["serving", "failed"]
    found = await ask("GetCacheLocation", "chat", **asked)
    assert found["matched_blocks"] == 2


@pytest.mark.usefixtures("team")
async def test_a_prompt_of_several_groups_is_found_where_each_has_what_it_needs(ask: Client) -> None:
    chain, groups = [b"a-full", b"b-full"], [{"key_suffix": b"-full"}, {"key_suffix": b"-window", "window": 1}]
    written = {"block_keys": [*chain, b"b-window"], "parents": [-1, 0, 1], "whole": True}
    await write(ask, **written)
    asked = {"instance_id": "chat-1", "query_type": "groups", "groups": groups}
    found = await ask("GetCacheLocation", "chat", block_keys=[b"a", b"b", b"c"], **asked)
    assert found["matched_blocks"] == 2
    assert len(found["blocks"]) == 3
    nothing = await ask("GetCacheLocation", "chat", block_keys=[b"a"], **asked)
    assert nothing.get("matched_blocks", 0) == 0


@pytest.mark.usefixtures("team")
async def test_what_a_caller_did_that_is_gone_is_noted(
    ask: Client, manager: CacheManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(ask, block_keys=KEYS)
    committed, heard = asyncio.Event(), asyncio.Event()

    async def commit(backend: SqliteBackend, changes: Commit) -> None:
        """As over a Redis whose answer takes its time."""
        await SqliteBackend.commit(backend, changes)
        committed.set()
        await heard.wait()

    monkeypatch.setattr(manager.index.backend, "commit", partial(commit, manager.index.backend))
    asking = asyncio.create_task(ask("RemoveCache", "chat", instance_id="chat-1", block_keys=KEYS))
    async with asyncio.timeout(60):
        await committed.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    for _ in range(10):  # what is sent later is heard of later
        await ask("ListInstances", "chat")
    heard.set()

    async def reported() -> list[str]:
        return [event.event for event in select([tmp_path / "events.jsonl"], Selection(), Tally())][-1:]

    await eventually(reported, ["remove_cache"])


@pytest.mark.usefixtures("team")
async def test_another_pool_s_instance_is_not_there(ask: Client) -> None:
    await write(ask, block_keys=KEYS)
    for call, fields in (
        ("GetCacheLocation", {"block_keys": KEYS}),
        ("StartWriteCache", {"block_keys": KEYS}),
        ("FinishWriteCache", {"write_id": "x", "block_keys": KEYS}),
        ("RemoveCache", {"block_keys": KEYS}),
        ("TrimCache", {}),
        ("UnregisterInstance", {}),
    ):
        with pytest.raises(Refusal) as one_of_another:
            await ask(call, "other", instance_id="chat-1", **fields)
        with pytest.raises(Refusal) as none:
            await ask(call, "other", instance_id="chat-9", **fields)
        assert str(one_of_another.value) == str(none.value).replace("chat-9", "chat-1")
        assert none.value.code == "NOT_FOUND"
    with pytest.raises(Refusal, match=r"NOT_FOUND: the instance group team .* does not list the pool ml/other"):
        await ask("RegisterInstance", "other", instance=INSTANCE)
    with pytest.raises(Refusal, match="PERMISSION_DENIED"):
        await ask("RegisterInstance", "other", instance={**INSTANCE, "pool": "ml/chat"})
    assert (await ask("ListInstances", "other")).get("instances", []) == []
    assert len((await ask("ListInstances", "chat"))["instances"]) == 1


@pytest.mark.parametrize("call", [call.name for call in CALLS if call.needs_admin])
async def test_what_pools_share_is_the_administrators(ask: Client, call: str) -> None:
    fields: dict[str, Any] = {
        "PutInstanceGroup": {"group": {"name": "g", "storages": ["disk"]}},
        "RegisterStorage": {"storage": {"name": "s", "type": "FileSystem", "options": {"root": "/"}}},
        "PutServiceAccount": {"account": {"name": "ml/engine", "pool": "ml/chat"}},
        "RemoveServiceAccount": {"name": "ml/engine"},
    }.get(call, {})
    if "Storage" in call and call not in ("RegisterStorage", "ListStorages", "GetAvailableStorage"):
        fields = {"name": "disk"}
    if call in ("RemoveInstanceGroup", "GetAvailableStorage"):
        fields = {"group": "team"}
    with pytest.raises(Refusal) as refusal:
        await ask(call, "chat", **fields)
    assert refusal.value.code == "PERMISSION_DENIED"


@pytest.mark.usefixtures("team")
async def test_an_administrator_of_one_namespace_speaks_for_no_other(ask: Client) -> None:
    lab = {"name": "team", "storages": ["disk"], "pools": ["lab/demo"], "aliases": ["lab.demo"]}
    reported = await ask("PutInstanceGroup", "root", group=lab, namespace="lab")
    assert reported["group"] == lab
    before = await ask("ListInstanceGroups", "root")
    account = {"name": "ml/engine", "pool": "ml/chat"}
    for call, fields in (
        ("PutInstanceGroup", {"group": lab}),
        ("PutInstanceGroup", {"group": lab, "namespace": "lab"}),
        ("PutServiceAccount", {"account": {**account, "name": "lab/engine"}}),
        ("PutServiceAccount", {"account": {**account, "pool": "lab/chat"}}),
        ("RemoveServiceAccount", {"name": "lab/engine"}),
    ):
        with pytest.raises(Refusal, match="may make changes for the namespace ml only, not for") as refusal:
            await ask(call, "of-ml", **fields)
        assert refusal.value.code == "PERMISSION_DENIED"
    with pytest.raises(Refusal, match="the pool lab/demo, which is not in that namespace") as refusal:
        await ask("PutInstanceGroup", "of-ml", group=lab, namespace="ml")
    assert refusal.value.code == "INVALID_ARGUMENT"
    assert await ask("ListInstanceGroups", "root") == before
    await ask("PutServiceAccount", "of-ml", account=account)
    await ask("RemoveServiceAccount", "of-ml", name=account["name"])
    reported = await ask("PutInstanceGroup", "of-ml", group={"name": "team", "storages": ["disk"]}, namespace="ml")
    assert "pools" not in reported["group"]
    (seen,) = (await ask("ListInstanceGroups", "of-ml", namespace="lab"))["groups"]
    assert seen["group"] == lab
    (seen,) = (await ask("ListInstanceGroups", "root"))["groups"]
    assert seen["group"]["pools"] == ["lab/demo"]


@pytest.mark.parametrize("token", ["", "guessed"])
@pytest.mark.parametrize("call", [call.name for call in CALLS])
async def test_no_report_is_accepted_without_a_token(ask: Client, call: str, token: str) -> None:
    with pytest.raises(Refusal) as refusal:
        await ask(call, token)
    assert refusal.value.code == "UNAUTHENTICATED"


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize(
    ("call", "fields", "message"),
    [
        ("GetCacheLocation", {}, "exactly one of block_keys and token_ids"),
        ("GetCacheLocation", {"block_keys": KEYS, "token_ids": [1]}, "exactly one of block_keys and token_ids"),
        ("GetCacheLocation", {"block_keys": [b"a", b"a"]}, "a key twice"),
        ("StartWriteCache", {"token_ids": [1] * (MAX_TOKENS + 1)}, "length <= 131072"),
        ("GetCacheLocation", {"block_keys": [b"a"], "query_type": "window"}, "must have the field 'window'"),
        ("GetCacheLocation", {"block_keys": [b"a"], "query_type": "suffix"}, "suffix"),
        ("GetCacheLocation", {"block_keys": [b"a"], "query_type": "groups"}, "must have the field 'groups'"),
        (
            "GetCacheLocation",
            {"token_ids": [1] * 2**15, "query_type": "groups", "groups": [{"key_suffix": b"x"}] * 65},
            "16384 blocks in 65 groups with 1 parts each exceed the maximum of 262144 parts",
        ),
        ("StartWriteCache", {"block_keys": [b"a", b"b"], "parents": [1, 0]}, "block 0 can't follow block 1"),
        ("StartWriteCache", {"block_keys": [b"a", b"b"], "parents": [-1]}, "parents has 1 entries for 2 blocks"),
        ("GetCacheLocation", {"block_keys": [b""]}, "length >= 1"),
        ("StartWriteCache", {"block_keys": [b"a"], "spec_sets": ["x"]}, "the instance has no spec set x"),
        ("StartWriteCache", {"block_keys": [b"a"], "spec_sets": ["x", "y"]}, "spec_sets has 2 entries for 1 blocks"),
        ("FinishWriteCache", {"write_id": "x", "block_keys": [b"a"], "failed_blocks": [1]}, "there is no block 1"),
    ],
)
async def test_what_is_wrong_with_a_request_is_said(
    ask: Client, call: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refusal, match=message) as refusal:
        await ask(call, "chat", instance_id="chat-1", **fields)
    assert refusal.value.code == "INVALID_ARGUMENT"


@pytest.mark.usefixtures("team")
async def test_tokens_that_make_too_many_blocks_are_refused(ask: Client) -> None:
    await ask("RegisterInstance", "chat", instance={**INSTANCE, "name": "chat-2", "block_size": 1})
    with pytest.raises(Refusal, match="INVALID_ARGUMENT: token_ids form more than 16384 blocks of 1 tokens"):
        await ask("StartWriteCache", "chat", instance_id="chat-2", token_ids=[1] * (MAX_KEYS + 1))


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"total": {"watermark": 0.5}}, "a watermark but no limit"),
        ({"total": {"limit": 1, "watermark": 1.5}}, "<= 1"),
        ({"storages": ["tape"]}, "unregistered storages; register them first: tape"),
        ({"eviction_policy": "FIFO"}, "FIFO"),
        ({"moves": {"bytes_per_second": 0}}, "bytes_per_second"),
        ({"moves": {}}, "bytes_per_second"),
        ({"total": {"limit": 5}, "instances": {"a": {"FileSystem": {"reserved": 6}}}}, "reserve 6 bytes"),
    ],
)
async def test_a_group_that_contradicts_itself_is_refused(ask: Client, group: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        await ask("PutInstanceGroup", "root", group={"name": "team", "storages": ["disk"], **group})
    (there,) = (await ask("ListInstanceGroups", "root"))["groups"]
    assert there["group"]["total"] == {"limit": 4 * 4096}


@pytest.mark.usefixtures("team")
async def test_a_zone_without_any_settings_is_a_zone(ask: Client) -> None:
    quotas: dict[str, Any] = {"ml/chat/acme": {}, "ml/chat/burst": {"FileSystem": {"reserved": 5}}}
    answer = await ask("PutInstanceGroup", "root", group={"name": "team", "storages": ["disk"], "zones": quotas})
    assert answer["group"]["zones"] == quotas


@pytest.mark.usefixtures("team")
async def test_a_group_is_meant_by_its_aliases_too(ask: Client) -> None:
    group = {"name": "shared", "storages": ["disk"], "pools": ["ml/chat"], "aliases": ["ml.chat", "ml.chat.acme"]}
    await ask("PutInstanceGroup", "root", group=group)
    second = {**INSTANCE, "name": "chat-2", "group": "ml.chat"}
    for _ in range(2):
        registered = await ask("RegisterInstance", "chat", instance=second)
        assert registered["instance"]["group"] == "shared"
    with pytest.raises(Refusal, match="NOT_FOUND"):
        await ask("RegisterInstance", "other", instance=second)
    with pytest.raises(Refusal, match="the group shared already has the alias"):
        await ask("PutInstanceGroup", "root", group={"name": "more", "storages": ["disk"], "aliases": ["ml.chat"]})
    # A group of that name comes first; and what is registered stays where its blocks are.
    own = {"name": "ml.chat.acme", "storages": ["disk"], "pools": ["ml/chat"]}
    await ask("PutInstanceGroup", "root", group=own)
    third = {**INSTANCE, "name": "chat-3", "group": "ml.chat.acme"}
    assert (await ask("RegisterInstance", "chat", instance=third))["instance"]["group"] == "ml.chat.acme"
    await ask("PutInstanceGroup", "root", group={**group, "aliases": []})
    await ask("PutInstanceGroup", "root", group={**own, "name": "other", "aliases": ["ml.chat"]})
    assert (await ask("RegisterInstance", "chat", instance=second))["instance"]["group"] == "shared"


@pytest.mark.usefixtures("team")
async def test_an_instance_never_changes(ask: Client) -> None:
    await ask("RegisterInstance", "chat", instance=INSTANCE)
    with pytest.raises(Refusal, match="registered with other settings") as refusal:
        await ask("RegisterInstance", "chat", instance={**INSTANCE, "block_size": 4})
    assert refusal.value.code == "FAILED_PRECONDITION"


@pytest.mark.usefixtures("team")
async def test_quotas_are_changed_at_run_time_and_usage_is_reported(ask: Client) -> None:
    await write(ask, block_keys=KEYS)
    own = {"chat-1": {"FileSystem": {"reserved": 2 * 4096}}}
    group = {
        "name": "team",
        "storages": ["disk"],
        "total": {"limit": 2**50, "watermark": 0.5},
        "types": {"FileSystem": {"limit": 2**49}},
        "instances": own,
        "eviction_policy": "LFU",
        "ttl_seconds": 60,
        "moves": {"bytes_per_second": 10**6},
    }
    answer = await ask("PutInstanceGroup", "root", group=group)
    assert answer["group"] == group
    (listed,) = (await ask("ListInstanceGroups", "root"))["groups"]
    assert listed["total"]["used"] == 3 * 4096
    assert listed["types"]["FileSystem"]["used"] == 3 * 4096
    (instance,) = (await ask("ListInstances", "root"))["instances"]
    assert instance["bytes_by_type"] == {"FileSystem": 3 * 4096}


@pytest.mark.usefixtures("team")
async def test_storages_come_go_and_are_switched(ask: Client, tmp_path: Path) -> None:
    await write(ask, block_keys=KEYS)
    assert len((await ask("GetAvailableStorage", "root", group="team"))["storages"]) == 1
    answer = await ask("DisableStorage", "root", name="disk")
    assert not answer.get("available", False)
    assert not answer["storage"]["enabled"]
    assert (await ask("GetAvailableStorage", "root", group="team")).get("storages", []) == []
    assert (await ask("GetCacheLocation", "chat", instance_id="chat-1", block_keys=KEYS)).get("matched_blocks", 0) == 0
    answer = await ask("EnableStorage", "root", name="disk")
    assert answer["available"]
    assert answer["used"] == 3 * 4096
    with pytest.raises(Refusal, match="registered with another type or address"):
        await ask("RegisterStorage", "root", storage={"name": "disk", "type": "S3", "options": {"bucket": "b"}})
    with pytest.raises(Refusal, match="used by the groups team"):
        await ask("UnRegisterStorage", "root", name="disk")
    with pytest.raises(Refusal, match="type must be one of FileSystem, S3, Mooncake, not Tape"):
        await ask("RegisterStorage", "root", storage={"name": "t", "type": "Tape"})
    with pytest.raises(Refusal, match="'mooncake' is not an address of a Mooncake master; write it as HOST:PORT"):
        await ask(
            "RegisterStorage", "root", storage={"name": "t", "type": "Mooncake", "options": {"master": "mooncake"}}
        )
    options = {"root": "/", "bucket": "b"}
    with pytest.raises(Refusal, match="FileSystem has no option bucket"):
        await ask("RegisterStorage", "root", storage={"name": "t", "type": "FileSystem", "options": options})
    other = {"name": "more", "type": "FileSystem", "options": {"root": str(tmp_path / "none"), "slots_per_file": 8}}
    answer = await ask("RegisterStorage", "root", storage=other)
    assert "there is no folder" in answer["problem"]
    await ask("UnRegisterStorage", "root", name="more")
    assert [each["storage"]["name"] for each in (await ask("ListStorages", "root"))["storages"]] == ["disk"]


async def test_service_accounts_are_put_listed_and_removed(ask: Client, manager: CacheManager) -> None:
    await ask("PutServiceAccount", "root", account={"name": "ml/engine", "pool": "ml/other"})
    await ask("PutServiceAccount", "root", account={"name": "ml/engine", "pool": "ml/chat"})
    assert (await ask("ListServiceAccounts", "root"))["accounts"] == [{"name": "ml/engine", "pool": "ml/chat"}]
    who = service_accounts(lambda: {"tz/operator": Caller("tz/operator", is_admin=True)}, manager.catalog)
    assert who("ml/engine") == Caller("ml/engine", "ml/chat")
    assert who("tz/operator") == Caller("tz/operator", is_admin=True)
    for wrong in ({"name": "engine", "pool": "ml/chat"}, {"name": "ml/engine", "pool": "ML/chat"}):
        with pytest.raises(Refusal, match="INVALID_ARGUMENT"):
            await ask("PutServiceAccount", "root", account=wrong)
    await ask("RemoveServiceAccount", "root", name="ml/engine")
    assert who("ml/engine") is None
    with pytest.raises(Refusal, match="there is no service account ml/engine"):
        await ask("RemoveServiceAccount", "root", name="ml/engine")


async def test_no_client_registers_itself_as_an_administrator(ask: Client, manager: CacheManager) -> None:
    await ask("PutServiceAccount", "root", account={"name": "tz/operator", "pool": "ml/chat"})
    who = service_accounts(lambda: {"tz/operator": Caller("tz/operator", is_admin=True)}, manager.catalog)
    assert who("tz/operator") == Caller("tz/operator", is_admin=True)


@pytest.mark.usefixtures("team")
async def test_what_a_group_has_lost_is_reported_and_forgotten_with_it(ask: Client, manager: CacheManager) -> None:
    await write(ask, block_keys=KEYS)
    group = {"name": "team", "storages": ["disk"], "total": {"limit": 4 * 4096, "watermark": 0.25}}
    answer = await ask("PutInstanceGroup", "root", group=group)
    assert (answer["instances"], answer.get("evicted_blocks", 0)) == (1, 0)
    await manager.reclaim()
    await manager.reclaim()
    (reported,) = (await ask("ListInstanceGroups", "root"))["groups"]
    assert (reported["evicted_blocks"], reported["evicted_bytes"]) == (2, 2 * 4096)
    assert await manager.index.count("evictions") == 1
    await manager.catalog.forget_instance(manager.catalog.instances["chat-1"])
    await ask("RemoveInstanceGroup", "root", group="team")
    assert await manager.index.count("evictions") == 0


@pytest.mark.usefixtures("team")
async def test_an_instance_is_unregistered_when_it_is_empty(
    ask: Client, manager: CacheManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(ask, block_keys=KEYS)
    with pytest.raises(Refusal, match="TrimCache first"):
        await ask("UnregisterInstance", "chat", instance_id="chat-1")
    removed = await ask("TrimCache", "chat", instance_id="chat-1")
    assert removed == {"blocks": 3, "bytes": 3 * 4096}
    later = manager.clock() + 1000
    monkeypatch.setattr(manager.reclaimer, "_clock", lambda: later)
    await manager.reclaim()
    await ask("UnregisterInstance", "chat", instance_id="chat-1")
    with pytest.raises(Refusal, match="NOT_FOUND"):
        await ask("GetCacheLocation", "chat", instance_id="chat-1", block_keys=KEYS)
    with pytest.raises(Refusal, match="NOT_FOUND"):
        await ask("RemoveInstanceGroup", "root", group="none")
    await ask("RemoveInstanceGroup", "root", group="team")


@pytest.mark.usefixtures("team")
async def test_an_internal_failure_is_not_shown_outside(ask: Client, manager: CacheManager) -> None:
    async def fails(*_: Any) -> None:
        raise RuntimeError("a secret")

    manager.reader.get_cache_location = fails  # type: ignore[method-assign, assignment]
    with pytest.raises(Refusal) as refusal:
        await ask("GetCacheLocation", "chat", instance_id="chat-1", block_keys=KEYS)
    assert refusal.value.code == "INTERNAL"
    assert "secret" not in str(refusal.value)


async def test_what_is_no_request_is_refused(ports: tuple[int, int]) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}", headers={"Authorization": "Bearer chat"}) as http_:
        for body, part in ((b"{", "truncated"), (b'{"instance": "x"}', "unknown field"), (b"[]", "Expected `object`")):
            async with http_.post("/v1/GetCacheLocation", data=body) as answer:
                assert answer.status == 400
                assert part in (await answer.json())["error"]["message"]


@pytest.mark.usefixtures("team")
async def test_health_and_metrics_are_reported(ask: Client, ports: tuple[int, int]) -> None:
    await write(ask, block_keys=KEYS)
    await ask("GetCacheLocation", "chat", instance_id="chat-1", block_keys=[*KEYS, b"x"])
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}") as http_:
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/v1/None", 404)):
            async with http_.get(path) as answer:
                assert answer.status == status
        async with http_.get("/metrics") as answer:
            text = await answer.text()
    for line in (
        'tenantzone_manager_queried_blocks_total{group="team"} 4.0',
        'tenantzone_manager_matched_blocks_total{group="team"} 3.0',
        'tenantzone_manager_write_blocks_total{group="team",standing="write"} 3.0',
        'tenantzone_manager_finished_blocks_total{ending="serving",group="team"} 3.0',
        'tenantzone_manager_used_bytes{group="team",type=""} 12288.0',
        'tenantzone_manager_used_bytes{group="team",type="FileSystem"} 12288.0',
        'tenantzone_manager_limit_bytes{group="team",type=""} 16384.0',
        'tenantzone_manager_storage_available{storage="disk",type="FileSystem"} 1.0',
        'tenantzone_manager_storage_enabled{storage="disk",type="FileSystem"} 1.0',
        'tenantzone_manager_requests_total{call="GetCacheLocation",code="ok"} 1.0',
        "tenantzone_manager_index_available 1.0",
    ):
        assert line in text


@pytest.mark.usefixtures("team")
async def test_a_query_by_groups_matches_no_more_blocks_than_it_asks_for(ask: Client, ports: tuple[int, int]) -> None:
    groups = [{"key_suffix": b"-full"}, {"key_suffix": b"-window", "window": 2}]
    await write(ask, block_keys=[b"a-full", b"b-full", b"a-window", b"b-window"], parents=[-1, 0, 0, 1])
    await ask("GetCacheLocation", "chat", instance_id="chat-1", block_keys=KEYS, query_type="groups", groups=groups)
    found = await ask(
        "GetCacheLocation", "chat", instance_id="chat-1", block_keys=[b"a", b"b"], query_type="groups", groups=groups
    )
    assert (found["matched_blocks"], len(found["blocks"])) == (2, 4)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}") as http_, http_.get("/metrics") as answer:
        text = await answer.text()
    assert 'tenantzone_manager_queried_blocks_total{group="team"} 5.0' in text
    assert 'tenantzone_manager_matched_blocks_total{group="team"} 2.0' in text


async def test_what_needs_no_index_is_reported_while_it_is_down(
    team: None, ask: Client, ports: tuple[int, int], manager: CacheManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(_: list[str]) -> dict[str, Account]:
        raise IndexUnavailable("gone")

    async def scrape() -> str:
        async with http_.get("/metrics") as answer:
            return await answer.text()

    manager.leads = True
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}") as http_:
        before = await scrape()
        await ask("DisableStorage", "root", name="disk")
        manager.leads = False
        monkeypatch.setattr(manager.index, "accounts", down)
        after = await scrape()
    storage = '{storage="disk",type="FileSystem"}'
    for name in ("leader", f"storage_available{storage}", f"storage_enabled{storage}"):
        assert f"tenantzone_manager_{name} 1.0" in before
        assert f"tenantzone_manager_{name} 0.0" in after
    assert "tenantzone_manager_used_bytes{" not in after
