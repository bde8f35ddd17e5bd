"""Runs managers as processes, and provides clients for them."""

import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import msgspec

from bench.processes import importing_alike
from hack.ports import free_ports, is_served
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.server.generated import manager_pb2
from tenantzone_manager.server.grpc import SERVICE

SIZE: Final = 4096
"""Size of a block, in bytes."""
INSTANCE: Final = Instance("chat", "team", 64, (Spec("tp0", SIZE),))


@dataclass(frozen=True, slots=True)
class Manager:
    """A running manager process."""

    http: int
    """HTTP port of the manager."""
    grpc: int
    """gRPC port of the manager."""
    pid: int


@contextlib.contextmanager
def manager(index: str, *options: str) -> Iterator[Manager]:
    """Run a manager on an index, which is a file or the URL of a Redis, with additional options."""
    http_port, grpc_port = free_ports(2)
    command = [sys.executable, "-m", "tenantzone_manager", "--anyone", "--index", index, "--log-level", "warning"]
    ports = ["--listen", f"127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}"]
    with subprocess.Popen([*command, *ports, *options], env=importing_alike()) as process:
        _await_port(http_port)
        yield Manager(http_port, grpc_port, process.pid)
        process.terminate()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if is_served(port):
            return
        time.sleep(0.02)
    raise TimeoutError(f"no process listens on port {port}")


@contextlib.asynccontextmanager
async def client(port: int) -> AsyncIterator[Any]:
    """Yields a function that makes calls over HTTP."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(call: str, **fields: Any) -> Any:
            async with session.post(f"/v1/{call}", data=msgspec.json.encode(fields)) as answer:
                body = await answer.read()
            if answer.status != 200:
                raise RuntimeError(body.decode())
            return msgspec.json.decode(body) if call != "GetCacheLocation" else None

        yield ask


@contextlib.asynccontextmanager
async def grpc_client(port: int) -> AsyncIterator[Any]:
    """Yields a function that makes calls over gRPC."""
    methods = manager_pb2.DESCRIPTOR.services_by_name["KVCacheManager"].methods_by_name
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

        async def ask(call: str, **fields: Any) -> Any:
            request = getattr(manager_pb2, methods[call].input_type.name)(**fields)
            answer = getattr(manager_pb2, methods[call].output_type.name)
            method = channel.unary_unary(
                f"/{SERVICE}/{call}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return await method(request)

        yield ask


async def register(ask: Any, disk: Path) -> None:
    """Register a storage, a group and an instance."""
    await ask("RegisterStorage", storage={"name": "disk", "type": "FileSystem", "options": {"root": str(disk)}})
    await ask("PutInstanceGroup", group={"name": "team", "storages": ["disk"], "total": {"limit": 2**50}})
    await ask("RegisterInstance", instance=INSTANCE)


async def write(ask: Any, prompt: list[bytes], first: int) -> None:
    """Write a prompt's blocks from index `first` on."""
    started = await ask("StartWriteCache", instance_id="chat", block_keys=prompt, first_block=first)
    write_id = started["write_id"] if isinstance(started, dict) else started.write_id
    await ask("FinishWriteCache", instance_id="chat", write_id=write_id, block_keys=prompt[first:])
