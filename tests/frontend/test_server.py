"""The frontend on a real server, as vLLM runs it."""

import asyncio
import http.client
import json

import httpx
import pytest

from tenantzone_runtime.frontend.responses.engine_refusal import accept
from tests.frontend.harness import PROMPT, eventually, frontend, serving, tenant_seen


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/completions", 200),
        ("/v1%2Fcompletions", 200),
        ("/v1/complet%69ons?a=/metrics", 200),
        ("//v1/completions", 404),
        ("/v1/completions/", 404),
        ("/V1/completions", 404),
        ("/v1/completions%2F", 404),
        ("/v1/./completions", 404),
        ("/health/../v1/completions", 404),
        ("/metrics/", 404),
        ("/metrics-of-all", 404),
        ("*", 404),
    ],
)
def test_a_spelling_is_judged_as_the_server_decodes_it(folder, target, status):
    headers = {"authorization": "Bearer acme-key", "content-type": "application/json"}
    with serving(frontend(folder)) as url:
        connection = http.client.HTTPConnection(url.removeprefix("http://"))
        connection.request("POST", target, body=json.dumps(PROMPT), headers=headers)
        answer = connection.getresponse()
        response = httpx.Response(answer.status, content=answer.read())
        connection.close()
    assert response.status_code == status
    if status == 200:
        assert tenant_seen(response) == "acme"


def test_a_body_in_chunks_is_sealed(folder):
    def chunks():
        yield from (b'{"pro', b'mpt": "he', b'llo"}')

    headers = {"authorization": "Bearer acme-key", "content-type": "application/json"}
    with serving(frontend(folder)) as url:
        response = httpx.post(f"{url}/v1/completions", content=chunks(), headers=headers, timeout=60)
    assert tenant_seen(response) == "acme"
    assert "transfer-encoding" not in response.json()["headers"]
    assert int(response.json()["headers"]["content-length"]) == len(response.json()["body"])


def test_a_large_body_is_sealed(folder):
    prompt = {"prompt": "x" * 1_000_000}
    with serving(frontend(folder)) as url:
        response = httpx.post(f"{url}/v1/completions", json=prompt, headers={"x-api-key": "acme-key"}, timeout=60)
    assert tenant_seen(response) == "acme"


def test_a_stream_arrives_piece_by_piece(folder):
    second_may_come = asyncio.Event()
    loops = []

    async def stream(scope, receive, send):
        loops.append(asyncio.get_running_loop())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await accept()
        await second_may_come.wait()
        await send({"type": "http.response.body", "body": b"second"})

    headers = {"authorization": "Bearer acme-key"}
    with (
        serving(frontend(folder, stream)) as url,
        httpx.stream("POST", f"{url}/v1/completions", json=PROMPT, headers=headers, timeout=60) as response,
    ):
        pieces = response.iter_raw()
        assert next(pieces) == b"first"
        loops[0].call_soon_threadsafe(second_may_come.set)
        assert next(pieces) == b"second"


def test_the_application_learns_that_the_client_went_away(folder):
    learned = []

    async def wait_for_end(scope, receive, send):
        assert (await receive())["type"] == "http.request"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await accept()
        learned.append((await receive())["type"])

    headers = {"authorization": "Bearer acme-key"}
    with serving(frontend(folder, wait_for_end)) as url:
        with httpx.stream("POST", f"{url}/v1/completions", json=PROMPT, headers=headers, timeout=60) as response:
            assert next(response.iter_raw()) == b"first"
        eventually(lambda: learned == ["http.disconnect"])


def test_many_requests_at_once_each_keep_their_tenant(folder):
    async def ask(url: str) -> list[str]:
        limits = httpx.Limits(max_connections=20)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            tenants = ["acme", "burst"] * 50
            sent = [
                client.post(f"{url}/v1/completions", json=PROMPT, headers={"x-api-key": f"{tenant}-key"})
                for tenant in tenants
            ]
            return [tenant_seen(response) for response in await asyncio.gather(*sent)]

    with serving(frontend(folder)) as url:
        assert asyncio.run(ask(url)) == ["acme", "burst"] * 50


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/completions"])
def test_a_websocket_is_refused(folder, path):
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "authorization": "Bearer acme-key",
    }
    with serving(frontend(folder)) as url:
        assert httpx.get(f"{url}{path}", headers=headers, timeout=60).status_code == 403
