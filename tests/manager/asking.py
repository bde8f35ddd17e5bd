"""Clients of the manager's two protocols, which are asked in the same way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import aiohttp
import grpc
import msgspec

from tenantzone_manager.server.conversion import from_plain, to_plain
from tenantzone_manager.server.generated import manager_pb2
from tenantzone_manager.server.grpc import SERVICE


class Refusal(Exception):
    """An answer that says why not."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Client(Protocol):
    async def __call__(self, call: str, token: str = "", **fields: Any) -> dict[str, Any]:
        """
        Raises:
            Refusal: it was not done.
        """


@asynccontextmanager
async def over_http(port: int) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(call: str, token: str = "", **fields: Any) -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with session.post(f"/v1/{call}", data=msgspec.json.encode(fields), headers=headers) as answer:
                body = await answer.json()
            if answer.status != 200:
                raise Refusal(body["error"]["code"], body["error"]["message"])
            return body

        yield ask


@asynccontextmanager
async def over_grpc(port: int, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[Client]:
    methods = manager_pb2.DESCRIPTOR.services_by_name["KVCacheManager"].methods_by_name
    address = f"127.0.0.1:{port}"
    async with (
        grpc.aio.insecure_channel(address) if credentials is None else grpc.aio.secure_channel(address, credentials)
    ) as channel:

        async def ask(call: str, token: str = "", **fields: Any) -> dict[str, Any]:
            request = from_plain(getattr(manager_pb2, methods[call].input_type.name), fields)
            kind = getattr(manager_pb2, methods[call].output_type.name)
            method = channel.unary_unary(
                f"/{SERVICE}/{call}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=kind.FromString,
            )
            metadata = [("authorization", f"Bearer {token}")] if token else []
            try:
                answer = await method(request, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                raise Refusal(error.code().name, error.details() or "") from error
            return to_plain(answer)

        yield ask
