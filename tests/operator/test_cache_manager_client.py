"""How the operator handles what answers where the KV-cache manager should be."""

import gzip
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hack.ports import free_ports
from tenantzone_operator.__main__ import main
from tenantzone_operator.cache_manager.client import (
    MAX_ANSWER_BYTES,
    ManagerAddress,
    ManagerClient,
    ManagerRefused,
    ManagerUnavailable,
)

Serve = Callable[[Any], Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves one answer to all requests, and returns the server."""
    servers = []

    async def start(answer: Callable[[web.Request], Any]) -> TestServer:
        app = web.Application()
        app.router.add_post("/v1/{call}", answer)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.close()


async def asked(url: str, token_file: Path | None = None) -> dict[str, Any]:
    async with ManagerClient(ManagerAddress(url, token_file)) as client:
        return await client.call("PutServiceAccount", name="a/b")


def refusal(code: str) -> str:
    return json.dumps({"error": {"code": code, "message": "its own words"}})


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (200, "no JSON", "is not a JSON object"),
        (200, "[]", "is not a JSON object"),
        pytest.param(200, "[" * 100_000, "is not a JSON object", id="lists in lists"),
        pytest.param(
            503,
            json.dumps({"error": {"code": "UNAVAILABLE", "message": "x" * 10_000}}),
            f": {'x' * 1000}$",
            id="without end",
        ),
        (404, "404: Not Found", "status 404"),
        (500, '{"error": "else"}', "status 500"),
        (401, refusal("UNAUTHENTICATED"), "its own words"),
        (403, refusal("PERMISSION_DENIED"), "its own words"),
        (503, refusal("UNAVAILABLE"), "its own words"),
    ],
)
async def test_what_is_no_answer_of_a_manager_is_none(serve: Serve, status: int, text: str, words: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    server = await serve(answer)
    with pytest.raises(ManagerUnavailable, match=words) as error:
        await asked(str(server.make_url("/")))
    assert str(server.port) in str(error.value)


@pytest.mark.parametrize("is_packed", [False, True])
async def test_an_answer_longer_than_any_of_a_manager_is_none(serve: Serve, is_packed: bool) -> None:
    async def answer(_: web.Request) -> web.Response:
        text = b"{}".ljust(MAX_ANSWER_BYTES + 1)
        headers = {"Content-Encoding": "gzip"} if is_packed else {}
        return web.Response(body=gzip.compress(text, 1) if is_packed else text, headers=headers)

    server = await serve(answer)
    with pytest.raises(ManagerUnavailable, match="not a JSON object" if is_packed else "maximum of 33,554,432 bytes"):
        await asked(str(server.make_url("/")))


async def test_the_longest_answer_of_a_manager_is_one(serve: Serve) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b'{"done": true}'.ljust(MAX_ANSWER_BYTES))

    server = await serve(answer)
    assert await asked(str(server.make_url("/"))) == {"done": True}


async def test_a_refusal_is_one(serve: Serve) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=refusal("FAILED_PRECONDITION"), status=409)

    server = await serve(answer)
    with pytest.raises(ManagerRefused, match="its own words") as error:
        await asked(str(server.make_url("/")))
    assert not error.value.is_missing


async def test_the_token_follows_no_redirect(serve: Serve, tmp_path: Path) -> None:
    seen: list[str] = []

    async def note(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    elsewhere = await serve(note)

    async def lead(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": str(elsewhere.make_url("/v1/PutServiceAccount"))})

    (tmp_path / "token").write_text("secret\n")
    server = await serve(lead)
    with pytest.raises(ManagerUnavailable):
        await asked(str(server.make_url("/")), tmp_path / "token")
    assert seen == []
    assert await asked(str(elsewhere.make_url("/")), tmp_path / "token") == {}
    assert seen == ["Bearer secret"]


async def test_a_connection_that_was_closed_meanwhile_is_made_again(serve: Serve) -> None:
    requests: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(1)
        if len(requests) == 1:
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"done": True})

    server = await serve(answer)
    assert await asked(str(server.make_url("/"))) == {"done": True}
    assert len(requests) == 2


@pytest.mark.parametrize("text", ["", "\n", "two words"])
async def test_a_file_without_a_token_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    for file, words in ((tmp_path / "token", "exactly one token"), (tmp_path / "none", "No such file")):
        with pytest.raises(ManagerUnavailable, match=words):
            await asked("http://127.0.0.1:9", file)


async def test_an_unreachable_manager_is_reported_with_the_address() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ManagerUnavailable, match=f"127.0.0.1:{port}"):
        await asked(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--manager-token-file", "/token"], "--manager-token-file requires --manager-url"),
        (["--manager-url", "tenantzone-manager:9470"], "--manager-url must be a URL such as http://"),
        (["--manager-url", "ftp://manager"], "--manager-url must be a URL such as http://"),
        (["--manager-url", "http://user:secret@manager"], "--manager-url must be a URL such as http://"),
        (["--manager-ca-file", "/ca"], "--manager-ca-file requires --manager-url"),
        (
            ["--manager-url", "http://manager", "--manager-ca-file", "/ca"],
            "--manager-ca-file requires an https:// URL",
        ),
        (
            ["--manager-url", "https://manager", "--manager-client-key-file", "/key"],
            "a certificate and its key must be given together",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    monkeypatch.setattr("sys.argv", ["tenantzone-operator", *flags])
    with pytest.raises(SystemExit):
        main()
    assert words in capsys.readouterr().err
