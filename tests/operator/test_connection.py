"""Credentials as kubectl takes them, and the handling of answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import kopf
import pytest
from aiohttp import web

from tenantzone_operator.kube.api import explain
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.credentials.service_account import CredentialsError, from_service_account
from tenantzone_operator.kube.rest import Rest, RestError
from tests.operator.test_kubeconfig import write


def test_a_pod_has_a_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "token").write_text("pod")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    found = from_service_account(tmp_path)

    assert (found.server, found.token, found.ca_path) == ("https://[fd00::1]:443", "pod", str(tmp_path / "ca.crt"))


def test_outside_of_a_pod_a_cluster_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(CredentialsError, match="--kubeconfig"):
        from_service_account(tmp_path)


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def server() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    runners = []

    async def start(answer: Answer) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_credentials_that_are_refused_are_taken_anew(server: Callable[[Answer], Awaitable[str]]):
    async def answer(request: web.Request) -> web.Response:
        is_new = request.headers["Authorization"] == "Bearer second"
        return web.json_response({"fine": True} if is_new else {"message": "expired"}, status=200 if is_new else 401)

    url, tokens = await server(answer), iter(["first", "second"])

    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url, token=next(tokens))

    async with Rest(log_in) as rest:
        assert await rest.call("GET", "/") == {"fine": True}
        assert await rest.call("GET", "/") == {"fine": True}


async def test_credentials_that_are_not_to_be_had_for_a_while_are_asked_for_again(
    server: Callable[[Answer], Awaitable[str]], tmp_path: Path
):
    async def answer(request: web.Request) -> web.Response:
        is_new = request.headers["Authorization"] == f"Bearer {valid}"
        return web.json_response({"fine": is_new}, status=200 if is_new else 401)

    valid, token = "first", tmp_path / "token"
    token.write_text(valid)
    config = write(tmp_path / "config", {"tokenFile": "token"}, {"server": await server(answer)})
    async with Rest(Connection(str(config)).for_kopf) as rest:
        assert await rest.call("GET", "/") == {"fine": True}
        token.unlink()
        valid = "second"
        with pytest.raises(RestError, match=r"refused the credentials, and new ones failed.*No such file") as caught:
            await rest.call("GET", "/")
        token.write_text(valid)
        assert await rest.call("GET", "/") == {"fine": True}

    assert not caught.value.is_lasting


@pytest.mark.parametrize("status", [200, 502])
async def test_an_answer_that_is_not_text_is_an_error_that_callers_expect(
    server: Callable[[Answer], Awaitable[str]], status: int
):
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=b"{\xff", content_type="application/json")

    url = await server(answer)

    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url)

    async with Rest(log_in) as rest:
        with pytest.raises(aiohttp.ClientError if status == 200 else RestError):
            await rest.call("GET", "/")


async def test_requests_under_way_are_not_lost_when_another_one_logs_in_again(
    server: Callable[[Answer], Awaitable[str]],
):
    began, renewed = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        is_new = request.headers["Authorization"] == "Bearer second"
        if request.path == "/slow":
            began.set()
            await renewed.wait()
        elif not is_new:
            return web.json_response({"message": "expired"}, status=401)
        return web.json_response({"new": is_new})

    url, tokens = await server(answer), iter(["first", "second"])

    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url, token=next(tokens))

    async with Rest(log_in) as rest:
        slow = asyncio.create_task(rest.call("POST", "/slow", body={}))
        await began.wait()
        assert await rest.call("GET", "/") == {"new": True}
        renewed.set()
        assert await slow == {"new": False}


async def test_a_watch_goes_on_when_another_request_logs_in_again(server: Callable[[Answer], Awaitable[str]]):
    renewed = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            is_new = request.headers["Authorization"] == "Bearer second"
            return web.json_response({}, status=200 if is_new else 401)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED"}\n')
        await renewed.wait()
        await response.write(b'{"type":"DELETED"}\n')
        return response

    url, tokens, seen = await server(answer), iter(["first", "second"]), []

    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url, token=next(tokens))

    async with Rest(log_in) as rest:
        async for event in rest.watch("/", {}, patience=30):
            seen.append(event["type"])
            if not renewed.is_set():
                await rest.call("GET", "/")
                renewed.set()

    assert seen == ["ADDED", "DELETED"]


async def test_a_refusal_carries_the_servers_words_and_wishes(server: Callable[[Answer], Awaitable[str]]):
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=429, text=json.dumps({"message": "too many"}), headers={"Retry-After": "7"})

    url = await server(answer)

    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url)

    async with Rest(log_in) as rest:
        with pytest.raises(RestError) as caught:
            await rest.call("GET", "/")

    assert (caught.value.status, caught.value.message, caught.value.retry_after) == (429, "too many", 7.0)


async def test_the_password_of_a_proxy_is_in_no_explanation(server: Callable[[Answer], Awaitable[str]]):
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    proxy = (await server(answer)).replace("http://", "http://me:s3cret@")

    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server="https://one:6443", proxy_url=proxy)

    async with Rest(log_in) as rest:
        with pytest.raises(aiohttp.ClientError) as caught:
            await rest.call("GET", "/")

    assert explain(caught.value).startswith("ClientHttpProxyError: 404")
    assert "s3cret" not in explain(caught.value)
