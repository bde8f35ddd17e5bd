"""What a tenant learns of the server's own failures, and who else does."""

import json
import logging
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, model_validator

from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.responses.answers import App, Receive, Scope, Send
from tenantzone_runtime.frontend.responses.error_masking import FAILED
from tests.frontend.harness import PROMPT, call, error_of, frontend, settings

REPORTED = (
    b"""{"error": {"message": "'float' object has no attribute 'get'", "type": "InternalServerError", "code": 500}}"""
)


def answering(status: int, *parts: bytes) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-of-the-app", b"1")]})
        for number, part in enumerate(parts, start=1):
            await send({"type": "http.response.body", "body": part, "more_body": number < len(parts)})

    return app


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
@pytest.mark.parametrize("parts", [(REPORTED,), (REPORTED[:20], REPORTED[20:], b"")])
def test_of_a_failure_of_the_server_a_tenant_hears_that_it_happened(
    folder, path: str, parts: tuple[bytes, ...], caplog
):
    with caplog.at_level(logging.ERROR):
        answer = call(frontend(folder, answering(500, *parts)), path=path, body=PROMPT, key="acme-key")
    assert answer.status_code == 500
    assert error_of(answer) == {"message": FAILED, "type": "InternalServerError", "param": None, "code": 500}
    assert "object has no attribute" in caplog.text
    assert path in caplog.text


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
def test_an_exception_does_not_pass_the_frontend(folder, path: str, caplog):
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise AttributeError("'float' object has no attribute 'get'")

    answer = call(frontend(folder, failing), path=path, body=PROMPT, key="acme-key")
    assert error_of(answer)["message"] == FAILED
    assert "AttributeError: 'float' object has no attribute 'get'" in caplog.text


def test_a_body_that_its_model_stumbles_over_is_the_clients_fault(folder, caplog):
    class Stumbling(BaseModel):
        form: Any = None

        @model_validator(mode="before")
        @classmethod
        def look(cls, data: Any) -> Any:
            if isinstance(data["form"], dict):
                return data
            return data["form"].get("kind")

    served = FastAPI()

    @served.post("/v1/completions")
    async def complete(request: Stumbling) -> str:
        return request.form["kind"].upper()

    # As in vLLM: inside of what answers exceptions with 500, and around what makes a model of the body.
    served.add_middleware(TenantMiddleware, settings=settings(folder))
    refused = error_of(call(served, body={"form": 1.5}, key="acme-key"))
    assert (refused["code"], refused["type"]) == (400, "BadRequestError")
    assert "attribute" not in refused["message"]
    failed = error_of(call(served, body={"form": {"kind": 1.5}}, key="acme-key"))
    assert (failed["code"], failed["message"]) == (500, FAILED), "behind its model a failure is the server's"
    assert call(served, body={"form": {"kind": "a"}}, key="acme-key").json() == "A"


@pytest.mark.parametrize(
    "event",
    [
        b"""{"error": {"message": "KeyError: 'acme'", "type": "InternalServerError", "code": 500}}""",
        b"""{"type":"error","error":{"type":"internal_error","message":"KeyError: 'acme'"}}""",
    ],
)
def test_in_the_midst_of_a_stream_too(folder, event: bytes, caplog):
    stream = (b'data: {"choices": []}\n\n', b"event: error\ndata: " + event + b"\n\ndata: [DONE]\n\n")
    answer = call(frontend(folder, answering(200, *stream)), body=PROMPT, key="acme-key")
    assert answer.status_code == 200
    assert "KeyError" not in answer.text
    assert FAILED in answer.text
    assert answer.text.startswith('data: {"choices": []}\n\nevent: error\ndata: {')
    assert answer.text.endswith("\n\ndata: [DONE]\n\n")
    assert "KeyError" in caplog.text


def test_anthropics_type_of_a_failure_is_sent_within_a_stream(folder):
    event = b'event: error\ndata: {"type":"error","error":{"type":"internal_error","message":"KeyError: 1"}}\n\n'
    answer = call(frontend(folder, answering(200, event)), path="/v1/messages", body=PROMPT, key="acme-key")
    assert json.loads(answer.text.split("data: ")[1])["error"] == {"type": "api_error", "message": FAILED}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error": {"message": "no such field", "type": "BadRequestError", "code": 400}}'),
        (503, b"busy"),
        (200, b'data: {"choices": [{"text": "it said \\"code\\":500"}]}\n\ndata: {"metadata": {"code":500}}\n\n'),
        (200, b'data: {"code":500}, which is not JSON\n\n'),
    ],
)
def test_other_answers_pass_as_they_are(folder, status: int, body: bytes):
    answer = call(frontend(folder, answering(status, body)), body=PROMPT, key="acme-key")
    assert (answer.status_code, answer.content, answer.headers["x-of-the-app"]) == (status, body, "1")


def test_without_tenants_the_server_answers_as_stock_does(tmp_path):
    assert call(frontend(tmp_path, answering(500, REPORTED)), body=PROMPT).content == REPORTED
