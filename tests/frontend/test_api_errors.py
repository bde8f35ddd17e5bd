"""The application's errors have the error format of the API that the request is for."""

import json

import pytest
from fastapi import FastAPI, HTTPException

from tests.frontend.harness import PROMPT, call, error_of, frontend
from tests.frontend.test_error_masking import answering

POSTED = ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/tokenize", "/v1/messages"]


def is_anthropic(path: str) -> bool:
    return path.startswith("/v1/messages")


@pytest.mark.parametrize("path", [*POSTED, "/v1/messages/count_tokens"])
def test_a_route_that_an_engine_does_not_serve_is_named(folder, path):
    answer = call(frontend(folder, FastAPI()), path=path, body=PROMPT, key="acme-key")
    error = error_of(answer)
    assert (error["code"], error["message"]) == (
        404,
        f"This engine does not serve {path}, possibly because its model has other routes; check the URL",
    )
    assert error["type"] == ("not_found_error" if is_anthropic(path) else "NotFoundError")
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
def test_a_method_that_an_engine_does_not_take_is_named_with_those_that_it_takes(folder, path):
    served = FastAPI()
    served.get(path)(lambda: None)
    answer = call(frontend(folder, served), path=path, body=PROMPT, key="acme-key")
    error = error_of(answer)
    assert (error["code"], error["message"]) == (405, f"{path} accepts GET, not POST")
    assert answer.headers["allow"] == "GET"
    assert error["type"] == ("invalid_request_error" if is_anthropic(path) else "MethodNotAllowedError")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
@pytest.mark.parametrize(("detail", "message"), [("busy", "busy"), ([{"loc": ["a"]}], '[{"loc": ["a"]}]')])
@pytest.mark.parametrize("status", [400, 409, 422, 501, 502])
def test_the_frameworks_other_errors_keep_their_status_message_and_headers(folder, path, detail, message, status):
    served = FastAPI()

    @served.post(path)
    async def fail() -> None:
        raise HTTPException(status, detail, headers={"retry-after": "3"})

    answer = call(frontend(folder, served), path=path, body=PROMPT, key="acme-key")
    assert (error_of(answer)["code"], error_of(answer)["message"]) == (status, message)
    assert answer.headers["retry-after"] == "3"


@pytest.mark.parametrize(
    ("status", "type_", "expected"),
    [(400, "Bad Request", "invalid_request_error"), (404, "NotFoundError", "not_found_error")],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_openais_format_becomes_anthropics_on_anthropics_routes(folder, status, type_, expected, parts):
    reported = {"error": {"message": "no such model", "type": type_, "param": "model", "code": status}}
    text = json.dumps(reported).encode()
    app = answering(status, text) if parts == 1 else answering(status, text[:9], text[9:], b"")
    answer = call(frontend(folder, app), path="/v1/messages", body=PROMPT, key="acme-key")
    assert answer.status_code == status
    assert answer.json() == {
        "type": "error",
        "error": {"type": expected, "message": "no such model", "param": "model"},
    }


def test_vllms_error_types_become_anthropics(folder):
    reported = b'{"type": "error", "error": {"type": "BadRequestError", "message": "too long"}}'
    answer = call(frontend(folder, answering(400, reported)), path="/v1/messages", body=PROMPT, key="acme-key")
    assert answer.json()["error"] == {"type": "invalid_request_error", "message": "too long"}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
@pytest.mark.parametrize("body", [b"busy", b"", b"[1]", b'{"a": 1}', b"[" * 100_000])
def test_what_has_another_form_passes_as_it_is(folder, path, body):
    answer = call(frontend(folder, answering(503, body)), path=path, body=PROMPT, key="acme-key")
    assert (answer.status_code, answer.content, answer.headers["x-of-the-app"]) == (503, body, "1")


def test_without_tenants_the_server_answers_as_stock_does(tmp_path):
    assert call(frontend(tmp_path, FastAPI()), path="/v1/completions", body=PROMPT).json() == {"detail": "Not Found"}
