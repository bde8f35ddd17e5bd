"""What keeps one process from writing, and what it reports about itself."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import aiohttp
import pytest
from aiohttp import web

from hack.ports import free_ports
from tenantzone_operator.__main__ import main
from tenantzone_operator.app import STUCK_SECONDS, Options
from tenantzone_operator.app import Operator as App
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.rest import Rest
from tenantzone_operator.kube.store import Store
from tenantzone_operator.leader.leader import Leader
from tenantzone_operator.leader.leadership import Alone, Leadership, LeaseExpired, fence
from tenantzone_operator.leader.lease import Election, LeaseObject, Timing
from tenantzone_operator.serving.health import health_served
from tests.operator.conftest import Operator
from tests.operator.kube import eventually

_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: nowhere, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: nobody, user: {{token: none}}}}]
contexts: [{{name: here, context: {{cluster: nowhere, user: nobody}}}}]
current-context: here
"""


@asynccontextmanager
async def served(
    answer: Callable[[web.Request], Awaitable[web.Response]], may_write: Callable[[], bool]
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client with one connection and a fence, and a server for it."""
    app = web.Application()
    app.router.add_route("*", "/{name}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{port}", connector=connector, trace_configs=[fence(may_write)]
    ) as http:
        yield http
    await runner.cleanup()


async def test_a_write_that_waited_for_a_connection_is_not_sent_when_the_lease_has_run_out():
    arrived: list[str] = []
    first_is_there, may_answer = asyncio.Event(), asyncio.Event()
    leads = True

    async def answer(request: web.Request) -> web.Response:
        arrived.append(f"{request.method} {request.path}")
        first_is_there.set()
        await may_answer.wait()
        return web.Response()

    async with served(answer, lambda: leads) as http:
        first = asyncio.create_task(_status(http, "PATCH", "/first"))
        await first_is_there.wait()
        second = asyncio.create_task(_status(http, "PATCH", "/second"))
        third = asyncio.create_task(_status(http, "GET", "/third"))
        await asyncio.sleep(0)
        leads = False
        may_answer.set()
        results = await asyncio.gather(first, second, third, return_exceptions=True)

    assert results[0] == results[2] == 200
    assert isinstance(results[1], LeaseExpired)
    assert arrived == ["PATCH /first", "GET /third"]


async def test_a_write_that_has_its_connection_is_not_sent_either_when_the_lease_runs_out_before_its_body_goes():
    arrived: list[str] = []
    looks = 0

    def may_write() -> bool:
        nonlocal looks
        looks += 1
        return looks == 1

    async def answer(request: web.Request) -> web.Response:
        arrived.append(await request.text())
        return web.Response()

    async with served(answer, may_write) as http:
        with pytest.raises(aiohttp.ClientConnectionError, match="is no longer the leader"):
            await _status(http, "PATCH", "/late", body="late")
        assert await _status(http, "GET", "/next") == 200

    assert arrived == [""]


async def test_health_answers_with_an_error_when_all_is_not_well():
    is_well = True
    (port,) = free_ports(1)

    def look() -> tuple[bool, dict[str, Any]]:
        return is_well, {"writes": 3}

    async with (
        health_served("127.0.0.1", port, live=look, ready=lambda: (False, {})),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        assert await _status(http, "GET", "/healthz") == 200
        assert await _status(http, "GET", "/readyz") == 503
        is_well = False
        assert await _status(http, "GET", "/healthz") == 503


@pytest.fixture
def idle_operator() -> App:
    """An operator that leads, and has done nothing yet."""
    api = Api(Rest(Connection(None).for_kopf), None)
    options = Options(Connection(None), namespace=None, probes=None, lease=None)
    return App(options, api, Leader(lambda: pytest.fail("nothing was listed yet")), Alone(), Store())


@contextmanager
def later(seconds: float) -> Iterator[None]:
    """Advances the time by `seconds`."""
    now = time.monotonic() + seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenantzone_operator.leader.leader.time.monotonic", lambda: now)
        yield


async def test_a_leader_that_reconciles_nothing_for_three_minutes_is_to_be_restarted(idle_operator: App):
    term = asyncio.create_task(idle_operator.leader.run(asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0)

    assert idle_operator.live()[0]
    with later(STUCK_SECONDS + 1):
        assert not idle_operator.live()[0]

    term.cancel()
    await asyncio.gather(term, return_exceptions=True)
    with later(STUCK_SECONDS + 1):
        assert idle_operator.live()[0], "a standby has nothing to reconcile"


def test_it_is_ready_from_its_first_listing_on_for_as_long_as_others_follow(idle_operator: App):
    assert not idle_operator.ready()[0]

    idle_operator.leader.check_all()

    assert idle_operator.ready()[0]
    with later(STUCK_SECONDS):
        assert not idle_operator.ready()[0]


def test_a_replica_to_which_the_api_server_does_not_answer_is_not_ready(idle_operator: App):
    clock = itertools.count(100.0, 8.0)
    lease = LeaseObject(Rest(Connection(None).for_kopf), "default", "any")
    election = Election(lease, "me", Timing(), clock=lambda: next(clock))
    idle_operator.leadership = Leadership(election)
    idle_operator.leader.check_all()
    assert not idle_operator.ready()[0], "it was never answered"

    election.answered_at = 110.0

    assert idle_operator.ready()[0]
    assert not idle_operator.ready()[0]


def test_durations_that_can_not_work_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["tenantzone-operator", "--leader-elect-lease-duration", "5s"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert "the lease duration must exceed the renew deadline" in capsys.readouterr().err


def test_asked_to_end_before_it_has_found_the_api_server_it_ends_cleanly(tmp_path: Path):
    (port,) = free_ports(1)
    (tmp_path / "kubeconfig").write_text(_KUBECONFIG.format(port=port))
    operator = Operator(tmp_path / "kubeconfig", tmp_path / "log", "--leader-elect")
    operator.start()
    eventually(operator.health)
    with pytest.raises(HTTPError, match="503"):
        operator.is_ready()

    assert operator.stop() == 0

    assert "Traceback" not in operator.log


async def _status(http: aiohttp.ClientSession, method: str, path: str, body: str | None = None) -> int:
    async with http.request(method, path, data=body) as answer:
        return answer.status
