"""If the frontend itself fails, the client gets an error of its API, and the log one line without the body."""

import asyncio
import logging
from typing import Any

import anthropic
import openai
import pytest

from tenantzone_runtime.frontend.responses.engine_refusal import accept, refuse
from tenantzone_runtime.frontend.routes import ROUTES, WEBSOCKET, Access
from tests.frontend.harness import PROMPT, call, error_of, frontend, serving
from tests.frontend.test_nesting import TAKING
from tests.frontend.test_refusals import refusals

SECRET = "what the client wrote"


def fail(*_: object, **__: object) -> Any:
    raise RecursionError(f"maximum recursion depth exceeded while looking at {SECRET}")


def is_anthropic(path: str) -> bool:
    return path.startswith("/v1/messages")


def one_line_of(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert not record.exc_info
    assert SECRET not in caplog.text
    return record.getMessage()


@pytest.mark.parametrize("path", TAKING)
@pytest.mark.parametrize("size", [10, 100_000], ids=["on the event loop", "on a worker"])
def test_a_body_that_the_frontend_fails_to_check_is_refused(folder, caplog, monkeypatch, path, size):
    monkeypatch.setattr("tenantzone_runtime.frontend.intake.check_sampling", fail)
    before = refusals()
    with caplog.at_level(logging.INFO):
        response = call(frontend(folder), path=path, body={"prompt": SECRET * (size // 10)}, key="acme-key")
    error = error_of(response)
    assert (error["code"], "send a simpler one" in error["message"]) == (400, True)
    assert error["type"] == ("invalid_request_error" if is_anthropic(path) else "BadRequestError")
    line = one_line_of(caplog)
    assert path in line
    assert "RecursionError in fail" in line
    assert refusals() == {**before, "failed": before["failed"] + 1}


@pytest.mark.parametrize(
    "part",
    [
        "frontend.active_config.ActiveConfig.look_if_due",
        "frontend.active_config.ActiveConfig.tenant_of",
        "frontend.in_flight.InFlight.admit",
        "frontend.middleware.check_headers",
        "frontend.middleware.routed_path",
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
def test_a_request_at_which_the_frontend_fails_may_be_repeated(folder, caplog, monkeypatch, part, path):
    made = frontend(folder)
    monkeypatch.setattr(f"tenantzone_runtime.{part}", fail)
    with caplog.at_level(logging.INFO):
        response = call(made, path=path, body={"prompt": SECRET}, key="acme-key")
    error = error_of(response)
    assert error["code"] == 503
    assert error["type"] == ("overloaded_error" if is_anthropic(path) else "ServiceUnavailableError")
    assert response.headers["retry-after"] == "1"
    assert "RecursionError in fail" in one_line_of(caplog)


def test_a_websocket_at_which_the_frontend_fails_is_closed(folder, caplog, monkeypatch):
    made = frontend(folder)
    monkeypatch.setattr("tenantzone_runtime.frontend.active_config.ActiveConfig.look_if_due", fail)
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(made({"type": "websocket", "path": "/v1/realtime", "headers": []}, send, send))
    assert [message["type"] for message in sent] == ["websocket.close"]
    assert one_line_of(caplog)


def test_what_is_held_of_a_request_that_fails_is_let_go(folder, monkeypatch):
    monkeypatch.setattr("tenantzone_runtime.frontend.intake.check_sampling", fail)
    made = frontend(folder)
    assert call(made, body=PROMPT, key="acme-key").status_code == 400
    assert made._in_flight.size == 0
    monkeypatch.undo()
    assert call(made, body=PROMPT, key="acme-key").status_code == 200


REFUSED = [route for route in ROUTES if route.access is not Access.OPEN and route.method != WEBSOCKET]


@pytest.mark.parametrize("route", REFUSED, ids=lambda route: f"{route.method} {route.path}")
def test_each_route_is_refused_in_the_error_format_of_its_api(folder, route):
    response = call(frontend(folder), route.method, route.path, body={}, key="unknown-key")
    assert ("type" in response.json()) == is_anthropic(route.path)
    assert error_of(response)["code"] == response.status_code


def test_the_prefix_under_which_the_server_is_mounted_does_not_hide_its_api(folder):
    response = call(frontend(folder), path="/base/v1/messages", root_path="/base", body={}, key="unknown-key")
    assert error_of(response)["type"] == "authentication_error"
    assert response.json()["type"] == "error"


DEEP: Any = {"a": 1}
for _ in range(200):
    DEEP = {"a": DEEP}


class TestClients:
    """The API owners' clients raise the same exceptions as for the APIs' own errors."""

    def test_anthropics(self, folder):
        with serving(frontend(folder)) as url, anthropic.Anthropic(base_url=url, api_key="acme-key") as client:
            messages: Any = [{"role": "user", "content": "a"}]
            with pytest.raises(anthropic.BadRequestError) as raised:
                client.messages.create(model="m", max_tokens=1, messages=messages, extra_body={"metadata": DEEP})
            assert raised.value.body["error"]["type"] == "invalid_request_error"
            assert "send flatter data" in raised.value.message
            with pytest.raises(anthropic.AuthenticationError):
                client.with_options(api_key="unknown-key").messages.create(model="m", max_tokens=1, messages=messages)

    def test_openais(self, folder):
        with serving(frontend(folder)) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="acme-key") as client:
            with pytest.raises(openai.BadRequestError, match="send flatter data") as raised:
                client.completions.create(model="m", prompt="a", extra_body={"metadata": DEEP})
            assert (raised.value.param, raised.value.code) == ("metadata", "400")

    def test_anthropics_within_a_stream(self, folder):
        event = b'event: ping\ndata: {"type": "ping"}\n\n'

        async def refuse_after_an_event(scope, receive, send):
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await accept()
            refusing = asyncio.create_task(refuse(429, "the queue is full"))
            while (await receive())["type"] != "http.disconnect":
                pass
            refusing.cancel()

        messages: Any = [{"role": "user", "content": "a"}]
        with (
            serving(frontend(folder, refuse_after_an_event)) as url,
            anthropic.Anthropic(base_url=url, api_key="acme-key", max_retries=0) as client,
        ):
            stream = client.messages.create(model="m", max_tokens=1, messages=messages, stream=True)
            with pytest.raises(anthropic.APIStatusError) as raised:
                list(stream)
        assert raised.value.body["error"] == {"type": "rate_limit_error", "message": "the queue is full"}
