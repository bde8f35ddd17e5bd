"""Credentials as kubectl takes them, and the handling of answers."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
import yaml
from aiohttp import web

from hack.controlplane.binaries import find_kubectl
from tenantzone_operator.kube import credential_plugin
from tenantzone_operator.kube.connection import Connection
from tenantzone_operator.kube.kubeconfig import CredentialsError, from_kubeconfig, from_service_account
from tenantzone_operator.kube.rest import Rest, RestError

CLUSTER = {"server": "https://one:6443", "certificate-authority": "ca.crt"}


def write(path: Path, user: dict[str, Any], cluster: dict[str, Any] = CLUSTER) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_files_are_named_from_where_the_kubeconfig_lies(tmp_path: Path):
    (tmp_path / "token").write_text("secret\n")

    found = from_kubeconfig(str(write(tmp_path / "config", {"tokenFile": "token", "client-key": "/abs/key"})))

    assert found.server == "https://one:6443"
    assert found.ca_path == str(tmp_path / "ca.crt")
    assert found.token == "secret"
    assert found.private_key_path == "/abs/key"


def test_data_counts_for_more_than_a_file(tmp_path: Path):
    user = {"client-certificate": "file", "client-certificate-data": "aGk=", "client-key": "key"}

    found = from_kubeconfig(str(write(tmp_path / "config", user)))

    assert (found.certificate_data, found.certificate_path) == ("aGk=", None)


def test_of_several_files_the_first_one_counts(tmp_path: Path):
    first = write(tmp_path / "first", {"token": "first"})
    second = write(tmp_path / "second", {"token": "second"}, {"server": "https://two:6443"})

    found = from_kubeconfig(f"{first}:{second}")

    assert (found.server, found.token) == ("https://one:6443", "first")


@pytest.mark.controlplane
@pytest.mark.parametrize("order", ["{missing}:{there}", "{there}:{missing}"])
def test_of_several_files_one_may_be_missing_as_for_kubectl(tmp_path: Path, order: str):
    there = write(tmp_path / "there", {"token": "there"})
    paths = order.format(there=there, missing=tmp_path / "missing")
    kubectl = subprocess.run(
        [find_kubectl(), "config", "view", "--minify", "--raw", "-o", "jsonpath={.users[0].user.token}"],
        env={"KUBECONFIG": paths, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert from_kubeconfig(paths).token == kubectl.stdout == "there"


@pytest.mark.parametrize("several", ["{0}", "{0}:{0}2"])
def test_where_no_file_is_there_the_first_one_is_named(tmp_path: Path, several: str):
    missing = tmp_path / "missing"

    with pytest.raises(CredentialsError, match=rf"No such file or directory: '{missing}'"):
        from_kubeconfig(several.format(missing))


def test_the_first_file_that_names_a_context_says_which_counts(tmp_path: Path):
    first, second = tmp_path / "first", write(tmp_path / "second", {"token": "second"})
    first.write_text(yaml.safe_dump({"clusters": [{"name": "c", "cluster": {"server": "https://two:6443"}}]}))

    found = from_kubeconfig(f"{first}:{second}")

    assert (found.server, found.token) == ("https://two:6443", "second")


def plugin(folder: Path, status: str, **fields: Any) -> dict[str, Any]:
    """A user whose credential plugin returns this status, in which ``asked`` is the plugin's input."""
    program = folder / "plugin.py"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os\n"
        "asked = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"print(json.dumps({{'status': {status}}}))\n"
    )
    program.chmod(0o700)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), **fields}}


def test_a_plugin_is_asked(tmp_path: Path):
    user = plugin(
        tmp_path, "{'token': asked['apiVersion'] + os.environ['EXTRA']}", env=[{"name": "EXTRA", "value": "!"}]
    )

    found = from_kubeconfig(str(write(tmp_path / "config", user)))

    assert found.token == "client.authentication.k8s.io/v1!"


def test_a_plugin_is_named_from_where_the_kubeconfig_lies(tmp_path: Path):
    user = plugin(tmp_path, "{'token': 'near'}", command="./plugin.py")

    assert from_kubeconfig(str(write(tmp_path / "config", user))).token == "near"


@pytest.mark.parametrize("wanted", [True, False])
def test_a_plugin_that_wants_to_gets_the_cluster(tmp_path: Path, wanted: bool):
    cluster = {
        **CLUSTER,
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}}],
    }
    (tmp_path / "ca.crt").write_text("authority")
    user = plugin(tmp_path, "{'token': json.dumps(asked['spec'])}", provideClusterInfo=wanted)

    reported = json.loads(from_kubeconfig(str(write(tmp_path / "config", user, cluster))).token or "")

    about = {
        "server": "https://one:6443",
        "certificate-authority-data": "YXV0aG9yaXR5",
        "config": {"audience": "us"},
    }
    assert reported == {"interactive": False, **({"cluster": about} if wanted else {})}


@pytest.mark.parametrize("status", ["{}", "{'clientCertificateData': 'alone'}"])
def test_a_plugin_that_gives_nothing_to_be_known_by_is_refused(tmp_path: Path, status: str):
    with pytest.raises(CredentialsError, match="neither a token nor a certificate with its key"):
        from_kubeconfig(str(write(tmp_path / "config", plugin(tmp_path, status))))


def test_a_plugin_that_takes_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(credential_plugin, "_SECONDS", 0.1)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["60"]}}

    with pytest.raises(CredentialsError, match="timed out"):
        from_kubeconfig(str(write(tmp_path / "config", user)))


@pytest.mark.parametrize("field", ["client-certificate", "client-certificate-data"])
def test_a_certificate_without_its_key_is_refused(tmp_path: Path, field: str):
    with pytest.raises(CredentialsError, match="a client certificate without its key"):
        from_kubeconfig(str(write(tmp_path / "config", {field: "aGk="})))


@pytest.mark.parametrize(
    ("cluster", "found"),
    [
        pytest.param({}, "http://proxy:3128", id="that of the environment"),
        pytest.param({"proxy-url": "http://named:3128"}, "http://named:3128", id="the kubeconfig says another"),
        pytest.param({"server": "https://near:6443"}, None, id="the environment leaves the server out"),
    ],
)
def test_a_proxy_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: dict[str, str], found: str | None):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "near")

    assert from_kubeconfig(str(write(tmp_path / "config", {}, {**CLUSTER, **cluster}))).proxy_url == found


@pytest.mark.parametrize(
    ("user", "message"),
    [
        pytest.param({"auth-provider": {"name": "gcp"}}, "auth-provider is not supported", id="what is long gone"),
        pytest.param({"as": "another"}, "as is not supported; the operator acts as itself", id="as another user"),
        pytest.param({"tokenFile": "missing"}, "missing", id="a file that is not there"),
        pytest.param(
            {"exec": {"apiVersion": "v1", "command": "false"}}, "false ended with 1", id="a plugin that fails"
        ),
    ],
)
def test_what_can_not_be_used_is_said(tmp_path: Path, user: dict[str, Any], message: str):
    with pytest.raises(CredentialsError, match=message):
        from_kubeconfig(str(write(tmp_path / "config", user)))


def test_a_server_of_another_name_is_not_believed_silently(tmp_path: Path):
    cluster = {**CLUSTER, "tls-server-name": "two"}

    with pytest.raises(CredentialsError, match="tls-server-name is not supported; name the server"):
        from_kubeconfig(str(write(tmp_path / "config", {"token": "secret"}, cluster)))


def test_a_proxy_that_does_not_speak_http_is_refused(tmp_path: Path):
    cluster = {**CLUSTER, "proxy-url": "socks5://proxy:1080"}

    with pytest.raises(CredentialsError, match="a proxy of http or https is supported, not of socks5"):
        from_kubeconfig(str(write(tmp_path / "config", {}, cluster)))


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
        with pytest.raises(RestError, match=r"no new credentials.*No such file") as caught:
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
