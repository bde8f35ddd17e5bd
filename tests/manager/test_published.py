"""The published descriptions of the API are those of the code."""

import re
from pathlib import Path
from typing import Any, get_type_hints

import aiohttp
import msgspec
from aiohttp.test_utils import TestServer
from openapi_spec_validator import validate

from hack.generate import manager_api
from tenantzone_manager.core import settings
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.reads.reading import LocationPlace, SpecPlace
from tenantzone_manager.server import http
from tenantzone_manager.server.access import Anyone, StaticTokens
from tenantzone_manager.server.generated import manager_pb2
from tenantzone_manager.server.messages import field_names
from tenantzone_manager.server.service import CALLS, Service

BY_ANOTHER_NAME = {SpecPlace: "LocationSpec", LocationPlace: "CacheLocation"}


def test_the_openapi_description_is_that_of_the_code() -> None:
    assert manager_api.OPENAPI.read_text() == manager_api.openapi()
    validate(msgspec.json.decode(manager_api.OPENAPI.read_bytes()))


def test_the_messages_are_those_of_the_proto_file() -> None:
    assert manager_api.MESSAGES.read_text() == manager_api.messages()


def test_the_proto_file_has_the_calls_and_types_of_the_code() -> None:
    methods = manager_pb2.DESCRIPTOR.services_by_name["KVCacheManager"].methods
    ours = [
        (method.name, getattr(manager_pb2, method.input_type.name), getattr(manager_pb2, method.output_type.name))
        for method in methods
    ]
    assert [name for name, _, _ in ours] == [call.name for call in CALLS]
    for call, (_, request, response) in zip(CALLS, ours, strict=True):
        assert request.DESCRIPTOR.name == call.request.__name__
        assert response.DESCRIPTOR.name == call.response.__name__


def test_the_proto_file_has_the_fields_of_the_code() -> None:
    seen: set[type] = set()
    waiting: list[Any] = [kind for call in CALLS for kind in (call.request, call.response)]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in seen:
                seen.add(kind)
                waiting += get_type_hints(kind, vars(settings)).values()
        else:
            waiting += getattr(kind, "__args__", ())
    assert settings.InstanceQuota in seen
    for kind in seen:
        message = getattr(manager_pb2, BY_ANOTHER_NAME.get(kind, kind.__name__))
        assert [field.name for field in message.DESCRIPTOR.fields] == field_names(kind), kind


async def test_the_file_of_tokens_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "kv-cache-manager.md").read_text()
    (shown,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "tokens"
    file.write_text(shown)
    known = [await StaticTokens(file).authenticate(token) for token in msgspec.json.decode(shown)]
    assert [(each.pool, each.is_admin, each.namespace) for each in known] == [
        ("ml/chat", False, ""),
        ("", True, ""),
        ("", True, "shop"),
    ]


async def test_the_server_shows_its_description(tmp_path: Path) -> None:

    manager = CacheManager(SqliteBackend(tmp_path / "index.db"))
    await manager.start(in_background=False)
    async with (
        TestServer(http.application(manager, Service(manager), Anyone())) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
        session.get("/openapi.json") as answer,
    ):
        assert await answer.text() == manager_api.OPENAPI.read_text()
    await manager.stop()
