"""A tenant whose queue the engine has just found full costs the engine nothing more for a moment."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tenantzone_runtime.frontend.responses.answers import App, Refusal
from tenantzone_runtime.frontend.responses.engine_refusal import arrive, refuse
from tenantzone_runtime.frontend.responses.full_queues import FullQueues
from tests.frontend.harness import PROMPT, call, echo, error_of, eventually, frontend, give_zones, serving, tenant_seen

FULL = "the queue of zone acme is full"


def full_for(seconds: float, seen: list[str] | None = None) -> App:
    """An engine that refuses each of acme's requests for that many seconds, and notes the tenants it has seen."""

    async def app(scope, receive, send):
        message = await receive()
        tenant = "acme" if b"acme" in dict(scope["headers"])[b"authorization"] else "other"
        if seen is not None:
            seen.append(tenant)
        if tenant != "acme":
            await echo(scope, _again(message), send)
            return
        asked = asyncio.ensure_future(refuse(429, FULL, 7, seconds))
        while (await receive())["type"] != "http.disconnect":
            pass
        asked.cancel()

    return app


def _again(message):
    async def receive():
        return message

    return receive


def _first(message, receive):
    coming = [message]

    async def receive_later():
        return coming.pop() if coming else await receive()

    return receive_later


def test_while_the_queue_is_known_to_be_full_the_engine_is_not_asked(folder):
    seen = []
    app = frontend(folder, full_for(60.0, seen))
    answers = [call(app, body=PROMPT, key="acme-key") for _ in range(3)]
    assert seen == ["acme"]
    for answer in answers:
        assert (error_of(answer)["message"], error_of(answer)["type"]) == (FULL, "RateLimitError")
        assert answer.headers["retry-after"] == "7"


def test_it_is_of_no_other_tenant_and_of_no_other_route(folder):
    app = frontend(folder, full_for(60.0))
    call(app, body=PROMPT, key="acme-key")
    assert tenant_seen(call(app, body=PROMPT, key="burst-key")) == "burst"
    asked = []

    async def tokenize(scope, receive, send):
        asked.append(scope["path"])
        await echo(scope, receive, send)

    app._masked_app = tokenize
    assert call(app, path="/tokenize", body=PROMPT, key="acme-key").is_success
    assert asked == ["/tokenize"], "no queue has to do with it"


@pytest.mark.parametrize("seconds", [0.0, 1e-9])
def test_when_the_time_is_over_the_engine_is_asked_again(folder, seconds):
    seen = []
    app = frontend(folder, full_for(seconds, seen))
    for _ in range(3):
        assert call(app, body=PROMPT, key="acme-key").status_code == 429
    assert seen == ["acme"] * 3


def test_a_config_that_comes_meanwhile_may_have_made_room(folder):
    seen = []
    app = frontend(folder, full_for(60.0, seen))
    call(app, body=PROMPT, key="acme-key")
    give_zones(folder, "acme", "burst", generation=2)
    app._active_config.look()
    call(app, body=PROMPT, key="acme-key")
    assert seen == ["acme"] * 2


HEAVY = {"prompt": ["hello"] * 100}
"""As much as the limiter admits for one tenant."""


def ask(url: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=HEAVY, headers={"authorization": "Bearer acme-key"}, timeout=60)


def test_who_waits_at_the_limiter_hears_what_became_of_the_one_before(folder):
    seen, may_refuse = [], threading.Event()
    refusing = full_for(60.0, seen)

    async def app(scope, receive, send):
        message = await receive()
        await asyncio.to_thread(may_refuse.wait)
        await refusing(scope, _first(message, receive), send)

    made = frontend(folder, app)
    with serving(made) as url, ThreadPoolExecutor() as pool:
        asked = [pool.submit(ask, url) for _ in range(2)]
        eventually(lambda: made._in_flight.size > 0 and len(made._in_flight._tenants["acme"].limiter._waiting) == 1)
        may_refuse.set()
        assert [each.result().status_code for each in asked] == [429, 429]
    assert len(seen) == 1


def test_what_the_engine_has_makes_room_for_the_next(folder):
    both = threading.Barrier(2)

    async def app(scope, receive, send):
        message = await receive()
        arrive()
        await asyncio.to_thread(both.wait, 60)
        await echo(scope, _again(message), send)

    with serving(frontend(folder, app)) as url, ThreadPoolExecutor() as pool:
        asked = [pool.submit(ask, url) for _ in range(2)]
        assert [each.result().status_code for each in asked] == [200, 200]


def test_without_a_frontend_arrivals_are_not_reported():
    arrive()


def test_what_is_over_is_not_kept():
    now = [0.0]
    queues = FullQueues(lambda: now[0])
    for number in range(100):
        queues.note(f"tenant-{number}", Refusal(429, "engine", FULL), 1.0)
        now[0] += 1.0
    assert len(queues._full) == 1
