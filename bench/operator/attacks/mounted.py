"""Engines that read each version of their pool's ConfigMap at once, demand signed configs, and check bearer tokens."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from bench.operator.attacks.held import Held, Reservations
from bench.operator.client import Client
from bench.operator.fleet import Engine, Fleet, report_of
from tenantzone_contract.keys.admin_token import ACCEPTED_FILE, ADMIN_TOKEN_HEADER, admin_secret_name
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_operator.kube.names import config_map_name
from tenantzone_operator.kube.rest import RestError
from tenantzone_runtime.reload import ConfigSource

_LOOK_SECONDS = 0.2


class MountedFleet(Fleet):
    """Engines whose mounted folder has each version of the ConfigMap at once, as if kubelet had no delay.

    Args:
        client: an administrator's client.
        port: the port of the engines' admin servers.
        reservations: records the reservations that each engine enforces.
        folder: the parent of the pools' folders.
    """

    def __init__(self, client: Client, port: int, reservations: Reservations, folder: Path) -> None:
        super().__init__(client, port)
        self._reservations = reservations
        self._folder = folder
        self._sources: dict[str, ConfigSource] = {}
        """Config source of each running engine, by the engine's name."""
        self._one_at_a_time = asyncio.Lock()
        self._tokens: dict[str, frozenset[str]] = {}
        """Bearer tokens that the engines of a pool accept, by pool."""
        self.configs: dict[str, dict[str, Any]] = {}
        """Entries of the first version of each pool's ConfigMap, by pool."""

    def mount(self, event: dict[str, Any]) -> None:
        """Update the mounted folder from an event of a ConfigMap; after a deletion the last version stays mounted."""
        name, prefix = event["object"]["metadata"]["name"], config_map_name("")
        if event["type"] == "DELETED" or not name.startswith(prefix):
            return
        pool = name.removeprefix(prefix)
        entries = {kind: event["object"].get(kind) or {} for kind in ("data", "binaryData")}
        self.configs.setdefault(pool, entries)
        content = {name: text.encode() for name, text in entries["data"].items()}
        content |= {name: base64.b64decode(text) for name, text in entries["binaryData"].items()}
        folder = self._folder / pool
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.name not in content:
                path.unlink()
        for file, each in content.items():
            (folder / file).write_bytes(each)
        for engine in self.engines.values():
            if engine.pool == pool and engine.name in self._sources:
                self._reload(engine)

    async def add(self, namespace: str, pool: str, count: int) -> None:
        """Start engines of a pool, as soon as the Secret that they mount exists."""
        path = f"/api/v1/namespaces/{namespace}/secrets/{admin_secret_name(pool)}"
        while pool not in self._tokens:
            try:
                found = await self._client.call("GET", path)
                self._tokens[pool] = frozenset(base64.b64decode(found["data"][ACCEPTED_FILE]).decode().split())
            except RestError as error:
                if error.status != 404:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
        await super().add(namespace, pool, count)

    async def bring_up(self, engine: Engine) -> None:
        tokens = [token.encode() for token in self._tokens[engine.pool]]
        self._sources[engine.name] = ConfigSource(self._folder / engine.pool, tokens=lambda: tokens)
        self._reload(engine)
        await super().bring_up(engine)

    async def take_down(self, engine: Engine) -> None:
        await super().take_down(engine)
        del self._sources[engine.name]
        engine.apply(None, ())
        self._reservations.stop(engine.name, engine.pool, time.monotonic())

    async def replace(self, engine: Engine, away_seconds: float = 0.0) -> None:
        """Replace an engine by a new one without state; this completes even if the caller is cancelled."""
        replacing = asyncio.create_task(self._replace(engine, away_seconds))
        try:
            await asyncio.shield(replacing)
        finally:
            await replacing

    async def _replace(self, engine: Engine, away_seconds: float) -> None:
        async with self._one_at_a_time:
            await self.take_down(engine)
            await asyncio.sleep(away_seconds)
            await self.bring_up(engine)

    def answers_of(self, engine: Engine) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not {bearer, request.headers.get(ADMIN_TOKEN_HEADER, "")} & self._tokens[engine.pool]:
                return web.Response(status=401, headers={"WWW-Authenticate": 'Bearer realm="tenantzone"'})
            return await engine.answer(request)

        return answer

    def _reload(self, engine: Engine) -> None:
        """Have an engine read its mounted folder."""
        source = self._sources[engine.name]
        source.poll()
        zones = () if source.config is None else tuple(map(report_of, source.config.zones))
        engine.apply(source.config, zones, source.rejection, demands_signature=True)
        # An engine without a config reserves nothing.
        held = {} if source.config is None else held_of(source.config)
        self._reservations.apply(engine.name, engine.pool, held, time.monotonic())


def held_of(config: RuntimeConfig) -> Held:
    """Returns the reservations of a config, by zone."""
    return {zone.name: zone.reserved for zone in config.zones}
