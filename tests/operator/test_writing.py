"""Statuses are written in an order that no engine controls; over HTTP, to a server that answers when it may."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import kopf
import pytest
from aiohttp import web

from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.rest import Rest
from tenantzone_operator.kube.store import Store
from tenantzone_operator.writing.events import Recorder
from tenantzone_operator.writing.status_writer import LATE_SECONDS, StatusWriter, WritingSlots
from tests.operator.objects import NOW, body

POOLS = 10
ZONES = 40


def status(generation: int, programmed: str, message: str = "") -> dict[str, Any]:
    condition = {"type": "Programmed", "status": programmed, "reason": "So", "message": message}
    times = {"lastTransitionTime": NOW, "observedGeneration": generation}
    return {"observedGeneration": generation, "conditions": [condition | times], "message": message}


READY, NEWS = status(1, "True"), status(1, "Unknown", "an engine does not answer")


class ApiServer:
    """Accepts statuses, and answers while it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.is_asked = asyncio.Event()
        self.asked: list[str] = []
        """The names whose statuses were sent, in order."""
        self.refuses = False
        """Whether it refuses each status for good."""
        self.condition_of_others: list[Any] = []
        """Conditions that another party adds to each status."""
        self.store = Store()
        """The operator's knowledge of its objects."""
        self._objects: dict[str, dict[str, Any]] = {}
        """The server's objects, by name."""

    def add(self, name: str, pool: str, generation: int = 1) -> None:
        """Adds a zone that was Programmed at its first generation."""
        self._objects[name] = body(name, generation=generation, spec={"pool": pool}, status=READY)
        self.store.zones.put(self._objects[name])

    def delete(self, name: str) -> None:
        """Deletes a zone."""
        found = self._objects.pop(name)
        self.store.zones.remove(found | {"metadata": found["metadata"] | {"resourceVersion": "1000"}})

    async def answer(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.asked.append(name)
        self.is_asked.set()
        if not name.startswith("honest"):
            await self.may_answer.wait()
        found = self._objects.get(name)
        if found is None:
            return web.json_response({"message": "not found"}, status=404)
        if self.refuses:
            return web.json_response({"message": "the object is invalid"}, status=422)
        version = {"resourceVersion": str(len(self.asked) + 1)}
        sent = json.loads(await request.text())["status"]
        sent["conditions"] += self.condition_of_others
        self._objects[name] = found | {"metadata": found["metadata"] | version, "status": sent}
        return web.json_response(self._objects[name])

    def status_of(self, name: str) -> Any:
        return self._objects[name]["status"]


@pytest.fixture
async def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[Api]:
    app = web.Application()
    app.router.add_patch("/apis/tenantzone.io/v1alpha1/namespaces/default/tenantzones/{name}/status", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()

    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=f"http://127.0.0.1:{runner.addresses[0][1]}")

    async with Rest(log_in) as rest:
        yield Api(rest, None)
    await runner.cleanup()


class Writing:
    """One pool's writer."""

    def __init__(self, server: ApiServer, api: Api, pool: str) -> None:
        self._store = server.store
        self._pool = pool
        self._writer = StatusWriter(server.store, api, Recorder(api), WritingSlots())

    async def write(self, statuses: dict[str, Any], may_go_on: Callable[[], bool] = lambda: True) -> float | None:
        return await self._writer.write(self._store.view(("default", self._pool)), statuses, None, may_go_on)

    async def stop(self) -> None:
        await self._writer.stop()

    @property
    def known(self) -> set[str]:
        """The uids of the objects whose writes it keeps in mind."""
        return set(self._writer._states)


async def test_what_engines_do_in_some_pools_keeps_no_zone_of_another_waiting(server: ApiServer, api: Api):
    names = {f"pool-{pool}": [f"zone-{pool}-{number}" for number in range(ZONES)] for pool in range(POOLS)}
    for pool, zones in names.items():
        for name in zones:
            server.add(name, pool)
    server.add("honest", "honest", generation=2)
    news = [
        asyncio.create_task(Writing(server, api, pool).write(dict.fromkeys(zones, NEWS)))
        for pool, zones in names.items()
    ]
    await server.is_asked.wait()

    async with asyncio.timeout(30):
        await Writing(server, api, "honest").write({"honest": status(2, "True")})

    assert not any(task.done() for task in news), "they wait for an answer"
    async with asyncio.timeout(30):
        while len({name.rpartition("-")[0] for name in server.asked}) < 3:
            server.is_asked.clear()
            await server.is_asked.wait()
    server.may_answer.set()
    await asyncio.gather(*news)


async def test_awaited_statuses_come_first_and_the_rest_in_turn(server: ApiServer, api: Api):
    server.may_answer.set()
    names = [f"zone-{number:02}" for number in range(ZONES)]
    for name in names[:-1]:
        server.add(name, "pool")
    server.add(names[-1], "pool", generation=2)
    writing = Writing(server, api, "pool")
    statuses = dict.fromkeys(names[:-1], NEWS) | {names[-1]: status(2, "Unknown")}

    wait = await writing.write(statuses, lambda: len(server.asked) < 10)
    assert server.asked[0] == names[-1]
    assert wait == 0.0, "there is more"
    assert len(server.asked) == 10

    # Meanwhile the engine is back and gone again: zones with the fewest writes come first.
    first = set(server.asked)
    again = statuses | {name: status(1, "Unknown", "again") for name in names[:-1]}
    while await writing.write(again) is not None:
        pass
    assert not first & set(server.asked[len(first) : ZONES])
    assert set(server.asked) == set(names)


async def test_a_refused_status_that_is_no_longer_wanted_is_not_retried(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
):
    server.may_answer.set()
    server.add("acme", "pool")
    writing = Writing(server, api, "pool")
    server.refuses = True
    assert await writing.write({"acme": NEWS}) is not None, "the refused status is retried later"
    assert await writing.write({"acme": READY}) is None, "the API server has this status"
    assert server.asked == ["acme"]


async def test_a_retry_in_flight_is_not_due_again(server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenantzone_operator.writing.refusals.RETRY_SECONDS", 0.0)
    server.may_answer.set()
    server.add("acme", "pool")
    writing = Writing(server, api, "pool")
    server.refuses = True
    await writing.write({"acme": NEWS})
    server.may_answer.clear()
    assert await writing.write({"acme": NEWS}) == LATE_SECONDS, "the retry hangs"
    assert server.asked == ["acme", "acme"]
    await writing.stop()


async def test_a_write_that_hangs_keeps_no_caller_waiting_and_is_made_once_at_a_time(server: ApiServer, api: Api):
    names = ["stuck", "honest-0", "honest-1"]
    for name in names:
        server.add(name, "pool", generation=2)
    writing = Writing(server, api, "pool")
    statuses = dict.fromkeys(names, status(2, "True"))

    async with asyncio.timeout(5):
        while {"honest-0", "honest-1"} - set(server.asked):
            assert await writing.write(statuses) is not None, "it comes back to see what became of the write"
        assert await writing.write(statuses) is not None
    assert server.asked.count("stuck") == 1

    server.may_answer.set()
    async with asyncio.timeout(5):
        while (wait := await writing.write(statuses)) is not None:
            assert wait <= 1.0
            await asyncio.sleep(wait)
    assert server.asked.count("stuck") == 1


async def test_writes_that_all_hang_in_one_namespace_keep_no_other_waiting(server: ApiServer, api: Api):
    stuck = [f"stuck-{number}" for number in range(60)]
    for name in stuck:
        server.add(name, "stuck", generation=2)
    server.add("honest", "honest", generation=2)
    hanging, honest = Writing(server, api, "stuck"), Writing(server, api, "honest")
    for _ in range(10):
        assert await hanging.write(dict.fromkeys(stuck, status(2, "True"))) is not None

    async with asyncio.timeout(5):
        assert await honest.write({"honest": status(2, "True")}) is None

    assert server.asked[-1] == "honest"
    await hanging.stop()


async def test_what_changes_while_it_is_written_is_written_again(server: ApiServer, api: Api):
    server.add("slow", "pool", generation=2)
    server.add("honest", "pool", generation=2)
    writing = Writing(server, api, "pool")
    assert await writing.write({"slow": status(2, "Unknown"), "honest": READY}) is not None

    def answer_now() -> bool:
        server.may_answer.set()
        return True

    new = {"slow": status(2, "True"), "honest": status(2, "True")}
    async with asyncio.timeout(10):
        wait = await writing.write(new, answer_now)
        while wait is not None:
            await asyncio.sleep(wait)
            wait = await writing.write(new)
    assert server.status_of("slow") == status(2, "True")


async def test_a_condition_of_others_does_not_make_amounts_urgent(server: ApiServer, api: Api):
    server.may_answer.set()
    server.condition_of_others = [{"type": "Theirs", "status": "True", "reason": "So", "message": ""}]
    server.add("acme", "pool")
    writing = Writing(server, api, "pool")
    for held in range(5):
        wait = await writing.write({"acme": NEWS | {"engines": [{"pod": "engine-0", "held": held}]}})

    assert len(server.asked) == 2, "the first, and the first amounts"
    assert wait is not None
    assert wait > 0


async def test_what_is_under_way_ends_when_the_pool_does(server: ApiServer, api: Api):
    server.add("stuck", "pool", generation=2)
    writing = Writing(server, api, "pool")
    assert await writing.write({"stuck": status(2, "True")}) is not None

    await writing.stop()
    server.may_answer.set()

    assert await writing.write({"stuck": status(2, "True")}) is None
    assert server.asked.count("stuck") == 2


async def test_states_of_gone_objects_are_forgotten_once_their_writes_have_ended(server: ApiServer, api: Api):
    for name in ("stuck", "honest-0", "honest-1"):
        server.add(name, "pool", generation=2)
    writing = Writing(server, api, "pool")
    statuses = dict.fromkeys(("stuck", "honest-0", "honest-1"), status(2, "True"))
    assert await writing.write(statuses) is not None
    server.delete("stuck")
    server.delete("honest-0")

    assert await writing.write(statuses) is not None
    assert writing.known == {"uid-stuck", "uid-honest-1"}
    server.may_answer.set()
    async with asyncio.timeout(10):
        wait = await writing.write(statuses)
        while wait is not None:
            await asyncio.sleep(wait)
            wait = await writing.write(statuses)
    assert writing.known == {"uid-honest-1"}
