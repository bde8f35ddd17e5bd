"""Simulates engines without a model, all in one process: they read the real config and send real reports.

An engine reads its pool's ConfigMap when its pod's annotation changes, which is when kubelet would update the volume.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from bench.operator.client import Client
from hack.harness.lies import Lie
from tenantzone_contract.reports.report import (
    REPORT_PATH,
    AdminPortStatus,
    ConfigStatus,
    EngineReport,
    IdentityReport,
    Rejection,
    SaltKeyStatus,
    dump_report,
)
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.identity import identity_digest
from tenantzone_contract.zone_config.packing import ConfigFiles, files_of, unpack_config
from tenantzone_contract.zone_config.share import ceil_blocks, floor_blocks

BLOCKS = 100_000
_TIME = 1.5e9
"""Placeholder for the time in a report that is encoded once and sent many times."""
_SALT_KEY = SaltKeyStatus(id="0123456789abcdef")
"""Salt key of all engines, so that the operator has no condition to write about it."""
_IDENTITY = IdentityReport(kind="APIKeys", digest=identity_digest(None))


class Engine:
    """A simulated engine: the admin server of one pod."""

    def __init__(self, namespace: str, name: str, pool: str, address: str) -> None:
        self.namespace, self.name, self.pool, self.address = namespace, name, pool, address
        self.lie: Lie | None = None
        """False report that is sent in place of the real report; None for the real report."""
        self._before, self._after = b"", b""
        self.apply(None, ())

    def apply(
        self,
        config: RuntimeConfig | None,
        zones: tuple[ZoneReport, ...],
        rejected: Rejection | None = None,
        *,
        demands_signature: bool = False,
    ) -> None:
        """Report from now on that the engine enforces the config and its zones, and which newer config it refuses."""
        status = ConfigStatus(
            applied_generation=config.generation if config is not None else None,
            applied_hash=config.hash if config is not None else None,
            rejected=rejected,
            demands_signature=demands_signature,
        )
        report = EngineReport(
            engine_version="simulated",
            pod=self.name,
            capacity_blocks=BLOCKS,
            block_size_tokens=16,
            free_blocks=BLOCKS,
            config=status,
            salt_key=_SALT_KEY,
            identity=_IDENTITY,
            admin_port=AdminPortStatus(),
            zones=zones,
            started_unix_time=0.0,
            published_unix_time=_TIME,
        )
        self._before, self._after = dump_report(report).split(str(_TIME).encode(), 1)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        report = self._before + str(time.time()).encode() + self._after
        return web.Response(body=report) if self.lie is None else await _tell(self.lie, report, request)


async def _tell(lie: Lie, report: bytes, request: web.Request) -> web.StreamResponse:
    answer = lie.tell(json.loads(report))
    await asyncio.sleep(answer.delay_seconds)
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = answer.length
    # The client may close the connection before it has read the whole answer.
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        for piece in answer.pieces:
            await asyncio.sleep(answer.pause_seconds)
            await response.write(piece)
    return response


class Fleet:
    """All engines with their servers; stands in for kubelet, too."""

    def __init__(self, client: Client, port: int) -> None:
        self._client = client
        self._port = port
        self.engines: dict[str, Engine] = {}
        """Engines by pod name; the names are unique over all namespaces."""
        self._shown: dict[str, str] = {}
        self._read: dict[str, tuple[ConfigFiles, RuntimeConfig, tuple[ZoneReport, ...]]] = {}
        """Files last read and their parsed content, by pool, so that the engines of a pool parse them only once."""
        self._runners: dict[str, web.AppRunner] = {}
        self._watching: asyncio.Task[None] | None = None

    async def start(self, namespace: str | None) -> None:
        """Watch the pods of a namespace; None for all namespaces."""
        self._watching = asyncio.create_task(self._watch(namespace), name="fleet")

    async def add(self, namespace: str, pool: str, count: int) -> None:
        """Add engines to a pool, with pods that are ready at once."""
        for number in range(count):
            index = len(self.engines)
            engine = Engine(namespace, f"{pool}-engine-{number}", pool, f"127.1.{index // 250}.{index % 250 + 2}")
            self.engines[engine.name] = engine
            await self._client.call("POST", _pods(namespace), body=_pod(engine))
            await self.bring_up(engine)

    async def bring_up(self, engine: Engine) -> None:
        """Start an engine's server, and mark its pod as ready."""
        await self._serve(engine)
        await self._set_ready(engine, True)

    async def take_down(self, engine: Engine) -> None:
        """Mark an engine's pod as not ready, then stop the engine's server."""
        await self._set_ready(engine, False)
        await self._runners.pop(engine.name).cleanup()

    async def _set_ready(self, engine: Engine, ready: bool) -> None:
        path, body = f"{_pods(engine.namespace)}/{engine.name}/status", {"status": _status(engine.address, ready)}
        await self._client.call("PATCH", path, body=body, content_type="application/merge-patch+json")

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for runner in self._runners.values():
            await runner.cleanup()

    def answers_of(self, engine: Engine) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Returns the HTTP handler of the engine's report."""
        return engine.answer

    async def _serve(self, engine: Engine) -> None:
        app = web.Application()
        app.router.add_get(REPORT_PATH, self.answers_of(engine))
        # A handler that sends a lie may hang, so cancel it when its client disconnects.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, engine.address, self._port).start()
        self._runners[engine.name] = runner

    async def _watch(self, namespace: str | None) -> None:
        async for event in self._client.events(_pods(namespace)):
            metadata = event["object"]["metadata"]
            annotation = metadata.get("annotations", {}).get(CONFIG_HASH_ANNOTATION)
            if annotation is not None and self._shown.get(metadata["name"]) != annotation:
                self._shown[metadata["name"]] = annotation
                await self._sync(self.engines[metadata["name"]])

    async def _sync(self, engine: Engine) -> None:
        path = f"/api/v1/namespaces/{engine.namespace}/configmaps/tenantzone-{engine.pool}"
        found = await self._client.call("GET", path)
        files = files_of(found)
        known = self._read.get(engine.pool)
        if known is None or known[0] != files:
            config = await asyncio.to_thread(unpack_config, files)
            self._read[engine.pool] = files, config, tuple(map(report_of, config.zones))
        engine.apply(*self._read[engine.pool][1:])


def report_of(zone: ZoneConfig) -> ZoneReport:
    """Returns an engine's report of a zone that holds no blocks."""
    return ZoneReport(
        name=zone.name,
        tenant=zone.tenant,
        generation=zone.generation,
        state="Evicted",
        reserved=floor_blocks(zone.reserved, BLOCKS),
        limit=BLOCKS if zone.limit is None else ceil_blocks(zone.limit, BLOCKS),
        in_use=0,
        cached=0,
    )


def _pods(namespace: str | None) -> str:
    return "/api/v1/pods" if namespace is None else f"/api/v1/namespaces/{namespace}/pods"


def _pod(engine: Engine) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": engine.name, "labels": {"pool": engine.pool}},
        "spec": {
            "schedulerName": "none",
            "automountServiceAccountToken": False,
            "containers": [{"name": "engine", "image": "simulated"}],
        },
    }


def foreign_pod(name: str) -> dict[str, Any]:
    """Returns a pod that is no engine, with about 10 kB of typical content."""
    variables = [{"name": f"SETTING_{number:03}", "value": 40 * "x"} for number in range(60)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "shop", "pod-template-hash": "5d8f7c9b6d", "release": "stable"},
            "annotations": {"notes": 4_000 * "x"},
        },
        "spec": {
            "schedulerName": "none",
            "automountServiceAccountToken": False,
            "containers": [{"name": "shop", "image": "shop", "env": variables}],
        },
    }


def _status(address: str, ready: bool) -> dict[str, Any]:
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
