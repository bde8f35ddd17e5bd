"""Engines that enforce each version of their pool's ConfigMap at once, forged or not, and check bearer tokens."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from bench.operator.attacks.held import Held, Reservations
from bench.operator.client import Client
from bench.operator.fleet import Engine, Fleet, report_of
from tenantzone_contract.admin_token import ACCEPTED_FILE, ADMIN_TOKEN_HEADER, admin_secret_name
from tenantzone_contract.config import RuntimeConfig
from tenantzone_contract.packing import files_of, unpack_config
from tenantzone_contract.report import ZoneReport
from tenantzone_operator.kube.names import config_map_name
from tenantzone_operator.kube.rest import RestError

_LOOK_SECONDS = 0.2


class MountedFleet(Fleet):
    """Engines whose kubelet has no delay: they enforce the content of the ConfigMap at once.

    Args:
        client: of an administrator.
        port: of the engines' admin servers.
        reservations: records what each engine has in force.
    """

    def __init__(self, client: Client, port: int, reservations: Reservations) -> None:
        super().__init__(client, port)
        self._reservations = reservations
        self._mounted: dict[str, tuple[RuntimeConfig, tuple[ZoneReport, ...]]] = {}
        """By pool: the newest version that could be read."""
        self._tokens: dict[str, frozenset[str]] = {}
        """By pool: those that its engines accept."""
        self.configs: dict[str, RuntimeConfig] = {}
        """By pool: its first config."""

    def mount(self, event: dict[str, Any]) -> None:
        """Take an event of a ConfigMap. Deletions and unreadable content leave the last version mounted."""
        name, prefix = event["object"]["metadata"]["name"], config_map_name("")
        if event["type"] == "DELETED" or not name.startswith(prefix):
            return
        pool = name.removeprefix(prefix)
        try:
            config = unpack_config(files_of(event["object"]))
        except ValueError:
            return
        self.configs.setdefault(pool, config)
        self._mounted[pool] = config, tuple(map(report_of, config.zones))
        for engine in self.engines.values():
            if engine.pool == pool and engine.name in self._runners:
                self._enforce(engine)

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
        if engine.pool in self._mounted:
            self._enforce(engine)
        await super().bring_up(engine)

    async def take_down(self, engine: Engine) -> None:
        await super().take_down(engine)
        engine.apply(None, ())
        self._reservations.stop(engine.name, engine.pool, time.monotonic())

    def answers_of(self, engine: Engine) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not {bearer, request.headers.get(ADMIN_TOKEN_HEADER, "")} & self._tokens[engine.pool]:
                return web.Response(status=401, headers={"WWW-Authenticate": 'Bearer realm="tenantzone"'})
            return await engine.answer(request)

        return answer

    def _enforce(self, engine: Engine) -> None:
        config, reports = self._mounted[engine.pool]
        engine.apply(config, reports)
        self._reservations.apply(engine.name, engine.pool, held_of(config), time.monotonic())


def held_of(config: RuntimeConfig) -> Held:
    """What a config reserves, by zone."""
    return {zone.name: zone.reserved for zone in config.zones}
