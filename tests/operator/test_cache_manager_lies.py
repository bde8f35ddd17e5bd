"""A KV-cache manager that lies, refuses or changes its mind costs nothing but what it should have done.

The operator's own reconciler, over HTTP, between an API server and a manager that answer as they are told.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from tenantzone_operator.cache_manager.client import ManagerAddress, ManagerClient
from tenantzone_operator.cache_manager.declared import FINALIZER, read_storage
from tenantzone_operator.cache_manager.objects import Objects
from tenantzone_operator.cache_manager.reconciler import ManagerReconciler
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.rest import Login, Rest
from tenantzone_operator.kube.specs import Body
from tenantzone_operator.kube.store import Store
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
"""What a manager answers that has all that is declared."""


class Cluster:
    """An API server with one KVStorage and one KVCacheGroup, which tells watchers of each status that is written."""

    def __init__(self) -> None:
        spec = {"type": "FileSystem", "fileSystem": {"path": "/mnt/kv"}}
        zones = [{"namespace": "shop", "name": "acme", "types": [{"type": "S3", "reserved": 1}]}]
        self.objects = {
            "kvstorages": body("disk", spec=spec),
            "kvcachegroups": body("team", spec={"storages": ["disk"], "zones": zones}),
        }
        self.others: dict[str, Body] = {}
        """Further KVCacheGroups, by name; what is written of them is taken, and not kept."""
        self.refused: set[str] = set()
        """Kinds whose statuses are not taken, ..."""
        self.why = "it is invalid"
        """... for this reason."""
        self.refusals = 0
        self.not_held: dict[str, int] = {}
        """By kind, with which status a finalizer is refused."""
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
        """Somebody has deleted it, after it was held."""
        found = self.objects[plural]
        found["metadata"] |= {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}

    def has_status(self, plural: str) -> bool:
        return bool(self.objects[plural].get("status"))

    def message(self, plural: str) -> str:
        return str(self.objects[plural]["status"]["message"])

    async def await_written(self, is_so: Callable[[], bool]) -> None:
        """Until this holds after a write, or the refusal of one."""
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
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = dict(HONEST)
        """By call: an answer, what makes one, or a refusal's code."""
        self.words = "its own words"
        """Of all that it refuses."""
        self.asked: list[tuple[str, Any]] = []
        self._is_asked = asyncio.Event()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/{call}", self._answered)
        return app

    async def await_asked(self, call: str, times: int) -> None:
        """Until it is asked this so many times more."""
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


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def store() -> Store:
    return Store(has_manager=True)


@pytest.fixture
async def run(cluster: Cluster, manager: Manager, store: Store) -> AsyncIterator[Callable[[], None]]:
    """Starts the operator's part."""
    api_server, server = TestServer(cluster.app()), TestServer(manager.app())
    await api_server.start_server()
    await server.start_server()
    tasks: list[asyncio.Task[None]] = []

    async with Rest(login(api_server)) as rest, ManagerClient(ManagerAddress(str(server.make_url("")), None)) as client:
        reconciler = ManagerReconciler(Api(rest, None), client, store, None)
        yield lambda: tasks.append(asyncio.create_task(reconciler.run()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await api_server.close()
    await server.close()


Run = Callable[[], None]


async def test_an_honest_one_makes_both_known(cluster: Cluster, run: Run) -> None:
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    await cluster.await_written(lambda: cluster.condition("kvstorages", "Ready") == ("True", "Ready"))


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("ListStorages", {"storages": [REPORT | {"used": "much"}]}),
        ("ListStorages", {"storages": [REPORT | {"used": -1}]}),
        ("ListStorages", {"storages": [REPORT | {"used": 2**63}]}),
        ("ListStorages", {"storages": [REPORT | {"problem": {"it": "is"}}]}),
        ("ListStorages", {"storages": {"disk": REPORT}}),
        ("ListStorages", {"storages": [None]}),
        ("ListInstanceGroups", {"groups": [GROUP_REPORT | {"total": None}]}),
        ("ListInstanceGroups", {"groups": [GROUP_REPORT | {"group": {"name": "team", "storages": 5}}]}),
        ("ListInstanceGroups", {"groups": [GROUP_REPORT | {"instances": 1e99}]}),
        ("ListInstances", {"instances": None}),
        ("ListInstances", {"instances": [{"instance": {"name": "x"}}]}),
        ("ListServiceAccounts", {}),
        ("ListServiceAccounts", {"accounts": [{"name": ["a/b"], "pool": "a/b"}]}),
        ("PutInstanceGroup", {"group": "team"}),
        ("ListStorages", "FAILED_PRECONDITION"),
    ],
)
async def test_one_that_answers_as_no_manager_does_is_unreachable(
    cluster: Cluster, manager: Manager, run: Run, call: str, answer: Any
) -> None:
    if call == "PutInstanceGroup":
        manager.answers["ListInstanceGroups"] = {"groups": []}
    manager.answers[call] = answer
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert cluster.condition("kvstorages", "Healthy") == ("Unknown", "ManagerUnreachable")
    assert cluster.condition("kvcachegroups", "Registered") == ("Unknown", "ManagerUnreachable")
    words = "its own words" if isinstance(answer, str) else f"not as a KV-cache manager does: {call}: "
    assert words in cluster.message("kvstorages")


async def test_what_it_says_at_length_is_cut(cluster: Cluster, manager: Manager, run: Run) -> None:
    manager.answers["ListStorages"] = {"storages": [REPORT | {"problem": "x" * 100_000}]}
    run()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    assert cluster.message("kvstorages") == "x" * 1000


async def test_a_service_account_that_is_refused_keeps_nothing_else_from_being_told(
    cluster: Cluster, manager: Manager, run: Run
) -> None:
    manager.answers["ListServiceAccounts"] = {"accounts": [{"name": "No Name", "pool": "a/b"}]}
    manager.answers["RemoveServiceAccount"] = "INVALID_ARGUMENT"
    run()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    assert cluster.condition("kvstorages", "Ready") == ("True", "Ready")


async def test_a_status_that_is_refused_keeps_no_other_from_being_written(cluster: Cluster, run: Run) -> None:
    cluster.refused = {"kvstorages"}
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert not cluster.has_status("kvstorages")


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has one round follow another."""
    monkeypatch.setattr("tenantzone_operator.cache_manager.reconciler.ROUND_SECONDS", 0.01)
    monkeypatch.setattr("tenantzone_operator.cache_manager.reconciler._PAUSE_SECONDS", 0.0)


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    """The last words of each that this part of the operator has logged."""
    of_us = [line for line in log.records if line.name.startswith("tenantzone_operator.cache_manager")]
    return [line.getMessage().rpartition(": ")[2] for line in of_us if line.levelname == "WARNING"]


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize("call", ["PutServiceAccount", "RemoveServiceAccount"])
async def test_an_account_that_is_refused_is_logged_once_for_each_change(
    manager: Manager, store: Store, run: Run, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    if call == "PutServiceAccount":
        store.pools.put(
            body(
                "demo",
                spec={
                    "selector": {"matchLabels": {"app": "vllm"}},
                    "tiers": {"manager": {"serviceAccountName": "vllm"}},
                },
            )
        )
    else:
        manager.answers["ListServiceAccounts"] = {"accounts": [{"name": "shop/old", "pool": "shop/demo"}]}

    async def rounds(answer: Any, words: str, count: int = 3) -> None:
        """So many in which the manager says this."""
        manager.words, manager.answers[call] = words, answer
        await manager.await_asked(call, count)

    manager.answers[call] = "INVALID_ARGUMENT"
    run()
    await rounds("INVALID_ARGUMENT", "its own words")
    assert warnings(caplog) == ["its own words"]
    await rounds("INVALID_ARGUMENT", "others")
    assert warnings(caplog) == ["its own words", "others"]
    await rounds({}, "")
    await rounds("INVALID_ARGUMENT", "others")
    assert warnings(caplog) == ["its own words", "others", "others"]


@pytest.mark.usefixtures("in_a_hurry")
async def test_a_status_that_is_refused_is_logged_once_for_each_change(
    cluster: Cluster, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.refused = {"kvstorages"}

    async def rounds(why: str) -> None:
        cluster.why, before = why, cluster.refusals
        await cluster.await_written(lambda: cluster.refusals >= before + 3)

    run()
    await rounds("it is invalid")
    assert warnings(caplog) == ["422 it is invalid"]
    await rounds("it is too long")
    assert warnings(caplog) == ["422 it is invalid", "422 it is too long"]
    cluster.refused = set()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    metadata = cluster.objects["kvstorages"]["metadata"] | {"generation": 2}
    cluster.refused, cluster.objects["kvstorages"]["metadata"] = {"kvstorages"}, metadata
    await rounds("it is too long")
    assert warnings(caplog) == ["422 it is invalid", "422 it is too long", "422 it is too long"]


class Noting(Rest):
    """Notes what becomes of each event of a watch: whether who watches goes on to the next one."""

    def __init__(self, log_in: Login) -> None:
        super().__init__(log_in)
        self.outcomes: asyncio.Queue[bool] = asyncio.Queue()

    async def watch(self, *args: Any, **named: Any) -> AsyncGenerator[dict[str, Any], None]:
        async for event in super().watch(*args, **named):
            goes_on = False
            try:
                yield event
                goes_on = True
            finally:
                self.outcomes.put_nowait(goes_on)


@pytest.mark.parametrize("is_ours", [True, False])
async def test_what_is_written_here_is_no_reason_to_look_again(cluster: Cluster, is_ours: bool) -> None:
    async with TestServer(cluster.app()) as server, Noting(login(server)) as rest:
        objects = Objects(Api(rest, None))
        (storage,) = await objects.list_all("kvstorages", read_storage)
        writer = objects if is_ours else Objects(Api(rest, None))
        await writer.apply_status("kvstorages", storage, {"message": "anything"})
        watching = asyncio.create_task(objects.await_change(60))
        async with asyncio.timeout(60):
            assert await rest.outcomes.get() is is_ours
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_group_that_goes_is_let_go_only_when_the_manager_has_let_it_go(
    cluster: Cluster, manager: Manager, run: Run
) -> None:
    """An instance that is gone already is not the group."""
    cluster.leave("kvcachegroups")
    instance = {"instance": {"name": "x", "group": "team", "pool": "shop/demo"}, "bytes_by_type": {}}
    manager.answers |= {
        "ListInstances": {"instances": [instance]},
        "PutInstanceGroup": GROUP_REPORT,
        "UnregisterInstance": "NOT_FOUND",
        "RemoveInstanceGroup": "FAILED_PRECONDITION",
    }
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert "it goes when" in cluster.condition_message("kvcachegroups", "Registered")
    assert FINALIZER in cluster.objects["kvcachegroups"]["metadata"]["finalizers"]


@pytest.mark.parametrize(("status", "condition"), [(403, ("False", "NotHeld")), (409, None), (404, None)])
async def test_an_object_that_can_not_be_held_keeps_no_other_from_being_told(
    cluster: Cluster, manager: Manager, run: Run, status: int, condition: tuple[str, str] | None
) -> None:
    cluster.not_held["kvstorages"] = status
    manager.answers["ListStorages"] = {"storages": []}
    manager.answers["ListServiceAccounts"] = {"accounts": [{"name": "shop/old", "pool": "shop/demo"}]}
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert cluster.condition("kvcachegroups", "Registered") == ("False", "StorageNotFound")
    assert cluster.has_status("kvstorages") is (condition is not None)
    if condition is not None:
        assert cluster.condition("kvstorages", "Registered") == condition
    calls = [call for call, _ in manager.asked]
    assert "RegisterStorage" not in calls, "what is not held would be left behind"
    assert "RemoveServiceAccount" in calls


async def test_a_group_that_goes_leaves_its_pool_to_another_without_a_refusal(
    cluster: Cluster, manager: Manager, run: Run
) -> None:
    cluster.leave("kvcachegroups")
    cluster.others["other"] = body("other", spec={"storages": ["disk"]})
    aliased = {"group": {"name": "team", "storages": ["disk"], "aliases": ["shop.demo"]}, "total": {"used": 1}}
    manager.answers |= {
        "ListInstanceGroups": {"groups": [aliased]},
        "PutInstanceGroup": GROUP_REPORT,
        "RemoveInstanceGroup": "FAILED_PRECONDITION",
    }
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    told = [fields["group"] for call, fields in manager.asked if call == "PutInstanceGroup"]
    assert [(each["name"], each.get("aliases", [])) for each in told[:2]] == [("team", []), ("other", [])]


async def test_what_is_declared_meanwhile_is_a_reason(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantzone_operator.cache_manager.reconciler.ROUND_SECONDS", 60.0)
    run()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    declared = cluster.objects["kvstorages"]
    metadata = declared["metadata"] | {"generation": 2, "resourceVersion": "1000"}
    cluster.objects["kvstorages"] = declared | {"metadata": metadata}
    await cluster.await_written(lambda: cluster.objects["kvstorages"]["status"]["observedGeneration"] == 2)
