"""The frontend answers a request that the engine refuses after the frontend has let it through."""

import asyncio
import threading

import httpx
import pytest

from tenantzone_runtime.frontend.responses.engine_refusal import accept, refuse
from tenantzone_runtime.frontend.responses.error_masking import FAILED
from tenantzone_runtime.frontend.transport.opening import before_opening, before_serving
from tests.frontend.harness import PROMPT, call, error_of, frontend, serving

HEADERS = {"authorization": "Bearer acme-key"}
REFUSED = "the prompt does not fit"


async def refuse_in_another_task(scope, receive, send):
    """As vLLM calls its engine: in another task than the one that waits for the client to disconnect."""
    assert (await receive())["type"] == "http.request"

    async def listen():
        while (await receive())["type"] != "http.disconnect":
            pass

    asked, listening = asyncio.create_task(refuse(400, REFUSED)), asyncio.create_task(listen())
    await asyncio.wait((asked, listening), return_when=asyncio.FIRST_COMPLETED)
    assert listening.done(), "for vLLM the client has gone away"
    asked.cancel()
    await send({"type": "http.response.start", "status": 500, "headers": []})
    await send({"type": "http.response.body", "body": b"null"})


async def refuse_in_a_stream(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await refuse_in_another_task(scope, receive, send)


async def begin_a_stream(send):
    """As vLLM does on a route whose stream begins before the engine is called."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})


async def refuse_behind_first_events(scope, receive, send):
    await begin_a_stream(send)
    await refuse_in_another_task(scope, receive, send)


async def refuse_within_a_stream(scope, receive, send):
    await begin_a_stream(send)
    await accept()
    await refuse_in_another_task(scope, receive, send)


async def refuse_before_the_first_event(scope, receive, send):
    await accept()
    await refuse_in_a_stream(scope, receive, send)


async def refuse_and_fail(scope, receive, send):
    await refuse_in_another_task(scope, receive, send)
    raise ValueError("null is no answer")


APPS = [
    refuse_in_another_task,
    refuse_in_a_stream,
    refuse_behind_first_events,
    refuse_before_the_first_event,
    refuse_and_fail,
]


@pytest.mark.parametrize("app", APPS)
def test_the_frontend_answers_in_place_of_the_application(folder, app):
    with serving(frontend(folder, app)) as url:
        response = httpx.post(f"{url}/v1/completions", json=PROMPT, headers=HEADERS, timeout=60)
    assert (error_of(response)["code"], error_of(response)["message"]) == (400, REFUSED)


def test_a_stream_that_has_begun_ends_with_the_error(folder):
    with serving(frontend(folder, refuse_within_a_stream)) as url:
        response = httpx.post(f"{url}/v1/completions", json=PROMPT, headers=HEADERS, timeout=60)
    first, error, done, _ = response.text.split("\n\n")
    assert (first, done) == ("data: first", "data: [DONE]")
    assert REFUSED in error


def test_what_was_kept_back_is_sent_when_the_engine_begins_to_answer(folder):
    may_end = threading.Event()

    async def app(scope, receive, send):
        await begin_a_stream(send)
        # vLLM's parsers may need many tokens for the next event.
        await accept()
        await asyncio.to_thread(may_end.wait, 60)
        await send({"type": "http.response.body", "body": b"data: last\n\n"})

    with (
        serving(frontend(folder, app)) as url,
        httpx.stream("POST", f"{url}/v1/responses", json=PROMPT, headers=HEADERS, timeout=60) as response,
    ):
        pieces = response.iter_raw()
        assert next(pieces) == b"data: first\n\n"
        may_end.set()
        assert b"".join(pieces) == b"data: last\n\n"


@pytest.mark.parametrize("is_accepted", [False, True])
def test_messages_stay_in_order_while_the_engine_begins_to_answer(folder, is_accepted):
    async def app(scope, receive, send):
        await begin_a_stream(send)
        accepting = asyncio.create_task(accept()) if is_accepted else asyncio.create_task(asyncio.sleep(0))
        for number in range(5):
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
        await accepting
        await send({"type": "http.response.body", "body": b"."})

    assert call(frontend(folder, app), body=PROMPT, key="acme-key").text == "data: first\n\n01234."


def test_a_request_that_is_not_the_frontends_goes_on():
    asyncio.run(accept())
    asyncio.run(refuse(400, REFUSED))


def test_an_error_that_is_no_refusal_is_the_servers(folder):
    async def fail(scope, receive, send):
        raise ValueError("a bug")

    answer = call(frontend(folder, fail), body=PROMPT, key="acme-key")
    assert (answer.status_code, error_of(answer)["message"]) == (500, FAILED)


def test_what_is_to_be_done_before_the_frontend_opens_is_done_once_for_each(folder, monkeypatch):
    monkeypatch.setattr("tenantzone_runtime.frontend.transport.opening._openers", [])
    done = []

    def opener():
        done.append("opened")

    before_opening(opener)
    before_opening(opener)
    frontend(folder)
    assert done == ["opened"]


def test_what_is_to_be_done_before_the_first_request_is_done_when_the_application_has_started(folder, monkeypatch):
    monkeypatch.setattr("tenantzone_runtime.frontend.transport.opening._serving_openers", [])
    events, messages = [], [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    before_serving(lambda application: events.append(application))

    async def app(scope, receive, send):
        for part in ("startup", "shutdown"):
            events.append((await receive())["type"])
            await send({"type": f"lifespan.{part}.complete"})

    async def receive():
        return messages.pop(0)

    async def send(message):
        events.append(message["type"])

    asyncio.run(frontend(folder, app)({"type": "lifespan", "app": "vLLM"}, receive, send))
    assert events == [
        "lifespan.startup", "vLLM", "lifespan.startup.complete", "lifespan.shutdown", "lifespan.shutdown.complete"
    ]  # fmt: skip
