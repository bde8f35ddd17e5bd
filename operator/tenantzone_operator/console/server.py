"""Serves the console over HTTP: the files of the web page, and the JSON that the page requests."""

import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from tenantzone_contract.bounded_http import HttpBounds
from tenantzone_contract.cache.blocks import DEFAULT_CELLS, MAX_CELLS
from tenantzone_operator.console.guard import ADDRESS, guarded
from tenantzone_operator.console.live import TRANSIENT, LiveEngines, NotThereError
from tenantzone_operator.console.recording import Recording
from tenantzone_operator.console.showing import show_blocks, show_change, show_pool, show_pools
from tenantzone_operator.console.showing_storages import show_storages
from tenantzone_operator.console.storages import LiveStorages, Stored
from tenantzone_operator.engines.answers import reason
from tenantzone_operator.kube.resources import Pod, Pool
from tenantzone_operator.kube.store import Key, Store
from tenantzone_operator.serving.http import served

_MAX_CHANGES = 50
_MAX_CHARTS = 12
_TIER: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_FILTER = 253
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The current state of this replica of the operator."""

    is_leading: bool
    is_ready: bool
    """Whether the replica's data is up to date."""
    has_listed: bool
    """Whether the replica has listed all objects at least once."""


@asynccontextmanager
async def console_served(
    port: int,
    store: Store,
    list_pods: Callable[[Pool], Awaitable[list[Pod]]],
    read_tokens: Callable[[str, str], Awaitable[Sequence[str]]],
    replica_state: Callable[[], ReplicaState],
    list_stored: Callable[[], Awaitable[Stored]] | None = None,
    bounds: HttpBounds | None = None,
) -> AsyncIterator[int]:
    """Context manager with the port as its value; serves the console on the loopback address until the block ends.

    Args:
        port: the port to listen on.
        store: contains the objects; filled by watches.
        list_pods: lists the pods that a pool selects, for pools that this replica does not watch.
        read_tokens: called with a pool's namespace and name; returns the tokens for the admin ports of its engines.
        replica_state: returns the state of this replica.
        list_stored: lists KVStorages and KVCacheGroups; None if this operator has no KV-cache manager.
        bounds: limits for slow clients; the default limits if None.
    """
    live = LiveEngines(store, list_pods, read_tokens)
    storages = None if list_stored is None else LiveStorages(list_stored)
    console = Console(store, live, Recording(store, live, lambda: replica_state().has_listed), replica_state, storages)
    async with console.recording.going_on(), served(ADDRESS, port, console.application(), bounds) as chosen:
        yield chosen


class Console:
    """The console's web application."""

    def __init__(
        self,
        store: Store,
        live: LiveEngines,
        recording: Recording,
        replica_state: Callable[[], ReplicaState],
        storages: LiveStorages | None,
    ) -> None:
        self.recording = recording
        self._store = store
        self._live = live
        self._replica_state = replica_state
        self._storages = storages
        self._host = socket.gethostname()
        self._page = {entry.name: entry.read_bytes() for entry in (files(__package__) / "page").iterdir()}

    def application(self) -> web.Application:
        app = web.Application(middlewares=[guarded])
        app.router.add_get("/", self._file)
        app.router.add_get("/storage", self._storage_page)
        app.router.add_get("/page/{name}", self._file)
        app.router.add_get("/api/storages", self._stored)
        app.router.add_get("/api/pools", self._pools)
        app.router.add_get("/api/pools/{namespace}/{name}", self._pool)
        app.router.add_get("/api/pools/{namespace}/{name}/blocks/{engine}", self._blocks)
        return app

    async def _file(self, request: web.Request) -> web.Response:
        return self._read(request.match_info.get("name", "index.html"))

    async def _storage_page(self, _: web.Request) -> web.Response:
        return self._read("storage.html")

    def _read(self, name: str) -> web.Response:
        content = self._page.get(name)
        if content is None:
            raise web.HTTPNotFound
        return web.Response(body=content, content_type=_TYPES[name.rpartition(".")[2]], charset="utf-8")

    def _replica(self) -> dict[str, Any]:
        replica_state = self._replica_state()
        return {
            "host": self._host,
            "leading": replica_state.is_leading,
            "ready": replica_state.is_ready,
            "hasListed": replica_state.has_listed,
            "hasManager": self._storages is not None,
        }

    async def _pools(self, _: web.Request) -> web.Response:
        pools = show_pools(self._store)
        return web.json_response({"unixTime": time.time(), "replica": self._replica(), "pools": pools})

    async def _stored(self, _: web.Request) -> web.Response:
        live = self._storages
        if live is not None:
            await live.look()
        stored, problem = (Stored(), "") if live is None else (live.stored, live.problem)
        looked = {"unixTime": time.time(), "replica": self._replica(), "problem": problem}
        return web.json_response(looked | show_storages(stored))

    async def _pool(self, request: web.Request) -> web.Response:
        key = _key(request)
        if key not in self._store.pool_keys(key[0]):
            raise web.HTTPNotFound
        engines = await self._live.engines(key)
        shown = show_pool(self._live.view(key), engines, request.query.get("filter", "")[:_LONGEST_FILTER])
        changes = [show_change(change) for change in self.recording.changes.of(key, _MAX_CHANGES)]
        whole = {"unixTime": time.time(), **shown, "changes": changes, "history": self._history(key, shown["zones"])}
        return web.json_response(whole)

    def _history(self, key: Key, zones: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the history of the declared zones. If there are many, includes only the ``_MAX_CHARTS`` largest."""
        history = self.recording.history
        largest = sorted((zone for zone in zones if not zone["registered"]), key=lambda zone: -(zone["held"] or 0))
        names = sorted(zone["name"] for zone in largest[:_MAX_CHARTS])
        return {"unixTimes": history.times, "held": {name: history.of((key[0], name)) for name in names}}

    async def _blocks(self, request: web.Request) -> web.Response:
        cells = request.query.get("cells", str(DEFAULT_CELLS))
        if not (cells.isascii() and cells.isdigit() and len(cells) < 9 and 0 < int(cells) <= MAX_CELLS):
            return web.json_response({"error": f"cells must be a number from 1 to {MAX_CELLS}"}, status=400)
        tier = request.query.get("tier", "")
        if tier and not _TIER.fullmatch(tier):
            return web.json_response({"error": "tier must be the name of a tier"}, status=400)
        try:
            found = await self._live.block_map(_key(request), request.match_info["engine"], int(cells), tier)
        except NotThereError as error:
            return web.json_response({"error": str(error)}, status=404)
        except TRANSIENT as error:
            return web.json_response({"error": reason(error)}, status=502)
        return web.json_response(show_blocks(found))


def _key(request: web.Request) -> Key:
    return request.match_info["namespace"], request.match_info["name"]
