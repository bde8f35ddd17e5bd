"""The attacks on ports: slow clients of the operator, and large or unauthenticated calls to the KV-cache manager."""

import asyncio
import contextlib
import time
import urllib.error
import urllib.request
from typing import Final

import grpc

from bench.operator.attacks.attacks import STORAGE, Attack
from bench.operator.attacks.site import Check, Site
from tenantzone_manager.server.messages import MAX_KEYS

_SLOW = 40
"""Number of slow connections to each port."""
_SLOW_SECONDS = 10.0
_HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "
_INSTANCE = "flood"
_METHOD = "/tenantzone.manager.v1.KVCacheManager/GetCacheLocation"
_LARGE_BYTES = 32 * 2**20
_ANSWERS_SECONDS = 10.0


async def _be_slow(site: Site) -> Check:
    """Send half a request head to each port of each replica from many clients, then one byte per second."""
    writers: list[asyncio.StreamWriter] = []
    try:
        for port in [port for ports in site.replicas.ports for port in ports]:
            for _ in range(_SLOW):
                # A replica that is restarting does not listen for a while.
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writers.append(writer)
                    writer.write(_HALF_A_HEAD)
        until = time.monotonic() + _SLOW_SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(1.0)
            for writer in writers:
                if not writer.is_closing():
                    writer.write(b"x")
    finally:
        for writer in writers:
            writer.close()

    async def is_answered() -> bool:
        return any([await site.replicas.leads(process) for process in site.replicas.processes])

    return is_answered


async def prepare(site: Site) -> None:
    """Register the group and the instance that large calls use."""
    manager = site.manager
    group = {"name": _INSTANCE, "storages": [STORAGE]}
    instance = {"name": _INSTANCE, "group": _INSTANCE, "block_size": 16, "specs": [{"name": "tp0", "size": 4096}]}
    await asyncio.to_thread(manager.ask, "PutInstanceGroup", group=group)
    await asyncio.to_thread(manager.ask, "RegisterInstance", instance=instance)


async def _call_largely(site: Site) -> Check:
    keys = [f"{site.chance.getrandbits(64):016x}" for _ in range(MAX_KEYS)]
    # The manager may refuse the call. The check is that it still answers other clients.
    with contextlib.suppress(urllib.error.HTTPError):
        await asyncio.to_thread(site.manager.ask, "StartWriteCache", instance_id=_INSTANCE, block_keys=keys)
    return _manager_answers(site)


async def _call_without_token(site: Site) -> Check:
    await asyncio.to_thread(_send_without_token, site.manager.grpc_port)
    return _manager_answers(site)


def _send_without_token(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary(_METHOD)
        for message in (_LARGE_BYTES * b"x", b"\xff\xff\xff"):
            with contextlib.suppress(grpc.RpcError):
                call(message, timeout=_ANSWERS_SECONDS)


def _manager_answers(site: Site) -> Check:
    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{site.manager.url}/healthz", timeout=_ANSWERS_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async def is_well() -> bool:
        return await asyncio.to_thread(answers)

    return is_well


ON_PORTS: Final[dict[str, Attack]] = {
    f"{_SLOW} slow clients of each of the operator's ports": Attack(5, "probes answered", _be_slow),
    f"KV-cache manager: StartWriteCache of {MAX_KEYS:,} blocks": Attack(15, "manager answers", _call_largely),
    "KV-cache manager: 32 MiB and garbage by gRPC, no token": Attack(20, "manager answers", _call_without_token),
}
"""Attacks on ports, by name."""
