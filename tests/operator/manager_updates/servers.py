"""An API server and a KV-cache manager with answers chosen by a test."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import kopf
from aiohttp import web
from aiohttp.test_utils import BaseTestServer

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.cache_manager.declared import FINALIZER
from tenantzone_operator.kube.rest import Login
from tests.operator.objects import NOW, body
from tests.operator.world import conditions

STORAGE = {"name": "disk", "type": "FileSystem", "options": {"root": "/mnt/kv"}}
REPORT = {"storage": STORAGE, "available": True, "problem": "", "used": 1}
GROUP_REPORT = {"group": {"name": "team", "storages": ["disk"]}, "total": {"used": 1}, "types": {}}
HONEST: dict[str, Any] = {
    "ListStorages": {"storages": [REPORT]},
    "ListInstanceGroups": {"groups": [GROUP_REPORT]},
    "ListInstances": {"instances": []},
    "ListServiceAccounts": {"accounts": []},
}
"""The answers of a manager that has everything that is declared."""
Run = Callable[[], None]
"""Starts the operator's part."""


class Cluster:
    """An API server with one KVStorage and one KVCacheGroup, which notifies watchers of each status write."""

    def __init__(self) -> None:
        spec = {"type": "FileSystem", "fileSystem": {"path": "/mnt/kv"}}
        zones = [{"namespace": "shop", "name": "acme", "types": [{"type": "S3", "reserved": 1}]}]
        self.objects = {
            "kvstorages": body("disk", spec=spec),
            "kvcachegroups": body("team", spec={"storages": ["disk"], "zones": zones}),
        }
        self.others: dict[str, Body] = {}
        """Further KVCacheGroups, by name; writes to them are accepted, but not kept."""
        self.refused: set[str] = set()
        """Kinds whose statuses are refused."""
        self.why = "it is invalid"
        """The reason for the refusal."""
        self.refusals = 0
        self.not_held: dict[str, int] = {}
        """The HTTP status with which a finalizer is refused, by kind."""
        self.has_written = asyncio.Event()
        self._version = 1

    def app(self) -> web.Application:
        app = web.Application()
        path = "/apis/tenantzone.io/v1alpha1/{plural}"
        app.add_routes(
            [
                web.get(path, self._listed),
                web.patch(path + "/{name}", self._changed),
                web.patch(path + "/{name}/status", self._changed),
            ]
        )
        return app

    def condition(self, plural: str, kind: str) -> tuple[str, str]:
        found = conditions(self.objects[plural])[kind]
        return found["status"], found["reason"]

    def condition_message(self, plural: str, kind: str) -> str:
        return str(conditions(self.objects[plural])[kind]["message"])

    def leave(self, plural: str) -> None:
        """Marks it as deleted, with its finalizer still there."""
        found = self.objects[plural]
        found["metadata"] |= {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}

    def has_status(self, plural: str) -> bool:
        return bool(self.objects[plural].get("status"))

    def message(self, plural: str) -> str:
        return str(self.objects[plural]["status"]["message"])

    async def await_written(self, is_so: Callable[[], bool]) -> None:
        """Waits until this holds after a write, or the refusal of one."""
        async with asyncio.timeout(60):
            while not is_so():
                self.has_written.clear()
                await self.has_written.wait()

    async def _listed(self, request: web.Request) -> web.StreamResponse:
        plural = request.match_info["plural"]
        if request.query.get("watch"):
            return await self._watched(request, plural)
        others = self.others.values() if plural == "kvcachegroups" else ()
        metadata = {"resourceVersion": str(self._version)}
        return web.json_response({"items": [self.objects[plural], *others], "metadata": metadata})

    async def _watched(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        since = int(request.query["resourceVersion"])
        while True:
            found = self.objects[plural]
            if int(found["metadata"]["resourceVersion"]) > since:
                since = int(found["metadata"]["resourceVersion"])
                await response.write(json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n")
            await asyncio.sleep(0.01)

    async def _changed(self, request: web.Request) -> web.Response:
        plural, sent = request.match_info["plural"], json.loads(await request.text())
        if request.path.endswith("/status") and plural in self.refused:
            self.refusals += 1
            self.has_written.set()
            return web.json_response({"message": self.why}, status=422)
        if not request.path.endswith("/status") and plural in self.not_held:
            return web.json_response({"message": "it is not taken"}, status=self.not_held[plural])
        if request.match_info["name"] in self.others:
            return web.json_response(self.others[request.match_info["name"]])
        self._version += 1
        found = self.objects[plural]
        metadata = found["metadata"] | sent.get("metadata", {}) | {"resourceVersion": str(self._version)}
        self.objects[plural] = found | {"metadata": metadata, "status": sent.get("status", found.get("status", {}))}
        self.has_written.set()
        return web.json_response(self.objects[plural])


class Manager:
    """A manager with answers chosen by a test."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = dict(HONEST)
        """By call: an answer, a function that makes one, or a refusal's code."""
        self.words = "its own words"
        """The message of all refusals."""
        self.asked: list[tuple[str, Any]] = []
        self._is_asked = asyncio.Event()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/{call}", self._answered)
        return app

    async def await_asked(self, call: str, times: int) -> None:
        """Waits until it gets the call this many times more."""
        wanted = self._count(call) + times
        async with asyncio.timeout(60):
            while self._count(call) < wanted:
                self._is_asked.clear()
                await self._is_asked.wait()

    def _count(self, call: str) -> int:
        return [each for each, _ in self.asked].count(call)

    async def _answered(self, request: web.Request) -> web.Response:
        call = request.match_info["call"]
        self.asked.append((call, await request.json()))
        self._is_asked.set()
        answer = self.answers.get(call, {})
        answer = answer() if callable(answer) else answer
        if isinstance(answer, str):
            return web.json_response({"error": {"code": answer, "message": self.words}}, status=400)
        return web.json_response(answer)


def login(server: BaseTestServer) -> Login:
    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=str(server.make_url("")).rstrip("/"))

    return log_in
