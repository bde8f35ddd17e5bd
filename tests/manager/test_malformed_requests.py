"""What is no request, or too large a one, costs the manager little: without a token nothing of it is read."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import msgspec
import pytest

from tenantzone_manager.core.settings import Instance, InstanceGroup, Spec
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.server.conversion import from_plain, repeated_values
from tenantzone_manager.server.generated import manager_pb2
from tenantzone_manager.server.grpc import SERVICE
from tenantzone_manager.server.messages import (
    LARGEST_REQUEST,
    MAX_KEYS,
    MAX_PARTS,
    MAX_VALUES,
    StartWriteCacheRequest,
    check_values,
)
from tenantzone_manager.server.service import CALLS
from tests.manager.asking import Refusal

GARBAGE = b"\xff\xff\xff"
CALL_NAMES = [call.name for call in CALLS]


class RawClient:
    """Sends bytes as they are."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def __call__(self, call: str, message: bytes, token: str = "") -> Any:
        metadata = [("authorization", f"Bearer {token}")] if token else []
        try:
            return await self._channel.unary_unary(f"/{SERVICE}/{call}")(message, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise Refusal(error.code().name, error.details() or "") from error


@pytest.fixture
async def send(ports: tuple[int, int]) -> AsyncIterator[RawClient]:
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[1]}", options=options) as channel:
        yield RawClient(channel)


@pytest.mark.parametrize("call", CALL_NAMES)
async def test_nothing_is_parsed_without_a_token(send: RawClient, call: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Refusal) as refusal:
        await send(call, GARBAGE)
    assert refusal.value.code == "UNAUTHENTICATED"
    assert not caplog.records


async def test_a_message_is_not_even_received_without_a_token(send: RawClient) -> None:
    too_large = bytes(2 * LARGEST_REQUEST)
    with pytest.raises(Refusal, match="UNAUTHENTICATED"):
        await send("GetCacheLocation", too_large)
    with pytest.raises(Refusal, match="RESOURCE_EXHAUSTED"):
        await send("GetCacheLocation", too_large, "chat")


@pytest.mark.parametrize("call", CALL_NAMES)
async def test_a_message_that_is_malformed_is_refused(send: RawClient, call: str) -> None:
    with pytest.raises(Refusal, match="is not a valid ") as refusal:
        await send(call, GARBAGE, "root")
    assert refusal.value.code == "INVALID_ARGUMENT"


async def test_malformed_requests_are_logged_once_for_each_caller(
    send: RawClient,
    ports: tuple[int, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for token in ("chat", "other"):
        for call in CALL_NAMES:
            with pytest.raises(Refusal):
                await send(call, GARBAGE, token)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}") as http:
        for _ in range(2):
            async with http.post("/v1/ListStorages", data=GARBAGE, headers={"Authorization": "Bearer root"}) as answer:
                assert answer.status == 400
    records = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.exc_info for record in records] == [None] * 3
    for record, caller in zip(records, ("ml/chat", "ml/other", "administrator 0"), strict=True):
        assert caller in record.getMessage()


async def test_a_request_of_too_many_values_is_refused_before_they_are_read(
    send: RawClient,
    ports: tuple[int, int],
) -> None:
    message = manager_pb2.StartWriteCacheRequest(instance_id="i", block_keys=[b"x"] * (MAX_VALUES + 1))
    with pytest.raises(Refusal, match=f"INVALID_ARGUMENT: .* {MAX_VALUES}"):
        await send("StartWriteCache", message.SerializeToString(), "chat")
    many = manager_pb2.RegisterInstanceRequest()
    for _ in range(MAX_VALUES + 1):
        many.instance.specs.add()
    sets = manager_pb2.RegisterInstanceRequest()
    sets.instance.spec_sets["all"].names.extend([""] * (MAX_VALUES + 1))
    for nested in (many, sets):
        with pytest.raises(Refusal, match=f"INVALID_ARGUMENT: .* {MAX_VALUES}"):
            await send("RegisterInstance", nested.SerializeToString(), "chat")
    body = b'{"token_ids": [1' + b",1" * (MAX_VALUES + 1) + b"]}"
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}", headers={"Authorization": "Bearer chat"}) as http,
        http.post("/v1/StartWriteCache", data=body) as answer,
    ):
        assert answer.status == 400
        assert str(MAX_VALUES) in (await answer.json())["error"]["message"]


@pytest.mark.parametrize("call", ["StartWriteCache", "GetCacheLocation"])
async def test_a_request_of_too_many_parts_is_refused(send: RawClient, manager: CacheManager, call: str) -> None:
    specs = tuple(Spec(f"tp{rank}", 1) for rank in range(1024))
    await manager.catalog.put_group(InstanceGroup("team", ()))
    await manager.catalog.register_instance(Instance("wide", "team", 16, specs, pool="ml/chat"))
    keys = [bytes([index >> 8, index & 255]) for index in range(MAX_PARTS // len(specs) + 1)]
    kind = getattr(manager_pb2, f"{call}Request")
    with pytest.raises(Refusal, match=f"INVALID_ARGUMENT: .* {MAX_PARTS} parts"):
        await send(call, kind(instance_id="wide", block_keys=keys).SerializeToString(), "chat")
    await send(call, kind(instance_id="wide", block_keys=keys[1:]).SerializeToString(), "chat")


async def test_a_query_of_too_many_groups_is_refused(send: RawClient, manager: CacheManager) -> None:
    await manager.catalog.put_group(InstanceGroup("team", ()))
    await manager.catalog.register_instance(Instance("many", "team", 16, (Spec("tp0", 1),), pool="ml/chat"))
    groups = [manager_pb2.KeyGroup(key_suffix=b"%d" % number) for number in range(32)]
    keys = [bytes([index >> 8, index & 255]) for index in range(MAX_PARTS // len(groups) + 1)]

    async def ask(some: list[bytes]) -> None:
        asked = manager_pb2.GetCacheLocationRequest(
            instance_id="many", block_keys=some, query_type="groups", groups=groups
        )
        await send("GetCacheLocation", asked.SerializeToString(), "chat")

    with pytest.raises(Refusal, match=f"INVALID_ARGUMENT: .* in 32 groups.* {MAX_PARTS} parts"):
        await ask(keys)
    await ask(keys[1:])


async def test_a_body_that_is_too_large_is_refused_with_a_code(ports: tuple[int, int]) -> None:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}", headers={"Authorization": "Bearer chat"}) as http,
        http.post("/v1/StartWriteCache", data=b" " * (LARGEST_REQUEST + 1)) as answer,
    ):
        assert answer.status == 413
        error = (await answer.json())["error"]
        assert error["code"] == "RESOURCE_EXHAUSTED"
        assert str(LARGEST_REQUEST) in error["message"]


@pytest.mark.parametrize("is_json", [True, False])
def test_a_write_of_as_many_blocks_as_there_may_be_is_not_too_large(is_json: bool) -> None:
    keys = [index.to_bytes(128, "big") for index in range(MAX_KEYS)]
    request = StartWriteCacheRequest(
        instance_id="i" * 128,
        block_keys=keys,
        parents=list(range(-1, MAX_KEYS - 1)),
        spec_sets=["full-attention"] * MAX_KEYS,
    )
    if is_json:
        body = msgspec.json.encode(request)
        check_values(body.count(b",") + 1)
    else:
        message = from_plain(manager_pb2.StartWriteCacheRequest, msgspec.to_builtins(request, builtin_types=(bytes,)))
        check_values(repeated_values(message, MAX_VALUES))
        body = message.SerializeToString()
    assert len(body) <= LARGEST_REQUEST
