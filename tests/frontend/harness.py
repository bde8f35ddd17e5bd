"""A minimal API server of an engine behind the frontend: it answers with the request that reached it."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import uvicorn

from tenantzone_contract.keys.salt import SALT_KEY_FILE
from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.identity import IdentityConfig
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.request_context import current_seal
from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Scope, Send
from tenantzone_runtime.seal import SEAL_ARGUMENT, unseal
from tenantzone_runtime.settings import Settings
from tests.runtime.folders import project, zone

SEAL_KEY = bytes(range(32))
SALT_KEY = bytes(range(32, 64))
PROMPT = {"prompt": "hello"}


def settings(folder: Path, *open_routes: str) -> Settings:
    """The settings of a pod whose engine reports its config, and whose keys are projected, in ``folder``."""
    return Settings(
        config_dir=folder / "of the operator",
        state_dir=folder / "config",
        keys_dir=folder / "keys",
        salt_dir=folder / "salt",
        identity_dir=folder / "identity",
        admin_host="127.0.0.1",
        admin_port=0,
        admin_token_dir=folder / "admin",
        open_routes=frozenset(open_routes),
        seal_key=SEAL_KEY,
        pod_name="",
    )


def give_keys(folder: Path, **keys: str) -> None:
    project(folder / "keys", keys)


def give_salt_key(folder: Path, key: bytes = SALT_KEY) -> None:
    project(folder / "salt", {SALT_KEY_FILE: key.hex()})


def give_zones(
    folder: Path,
    *tenants: str,
    generation: int = 1,
    unknown: Literal["Reject", "AutoRegister"] = "Reject",
    identity: IdentityConfig | None = None,
) -> None:
    unknown_tenants = UnknownTenants(mode=unknown)
    pool = PoolConfig(namespace="models", name="main", unknown_tenants=unknown_tenants, identity=identity)
    config = make_config(generation, pool, tuple(map(zone, tenants)))
    project(folder / "config", {CONFIG_KEY: dump_config(config)})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what arrived: path, headers, body and seal. It stands in for vLLM."""
    assert scope["type"] == "http"
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    seen = {
        "path": scope["path"],
        "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
        "body": body.decode(),
        "seal": current_seal(),
    }
    answer = json.dumps(seen).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": answer})


def call(
    app: App,
    method: str = "POST",
    path: str = "/v1/completions",
    *,
    body: bytes | object = b"",
    headers: Mapping[str, str] | None = None,
    key: str | None = None,
    root_path: str = "",
    more: Mapping[str, Any] | None = None,
    receive: Receive | None = None,
) -> httpx.Response:
    """Sends one request directly through ASGI: what a server in between would tidy up arrives unchanged.

    Several headers of one name are in one value, one per line. ``more`` is for the scope; ``receive`` provides the
    request's messages instead of the body.
    """
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", **(headers or {})}
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "root_path": root_path,
        "headers": [
            (name.encode(), value.encode("latin-1")) for name, values in sent.items() for value in values.split("\n")
        ],
        **(more or {}),
    }
    incoming = [{"type": "http.request", "body": content, "more_body": False}]
    outgoing: list[Message] = []

    async def receive_whole() -> Message:
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        outgoing.append(message)

    asyncio.run(app(scope, receive or receive_whole, send))
    start, *parts = outgoing
    return httpx.Response(start["status"], headers=start["headers"], content=b"".join(part["body"] for part in parts))


@contextmanager
def serving(app: App, **options: Any) -> Iterator[str]:
    """The app on a real server, as vLLM runs it, with further uvicorn options."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", **options))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])))
    thread.start()
    try:
        scheme, host = ("https", "localhost") if options.get("ssl_certfile") else ("http", "127.0.0.1")
        yield f"{scheme}://{host}:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        sock.close()


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error in an answer, with ``message``, ``type``, ``param`` and ``code``, in OpenAI's format or Anthropic's."""
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    if body.get("type") == "error":
        assert set(body) == {"type", "error"}
        assert set(body["error"]) in ({"type", "message"}, {"type", "message", "param"})
        return {"param": None, **body["error"], "code": response.status_code}
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == response.status_code
    return body["error"]


def body_seen(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return json.loads(response.json()["body"])


def tenant_seen(response: httpx.Response) -> str:
    body, seal = body_seen(response), response.json()["seal"]
    assert body.get("vllm_xargs", {SEAL_ARGUMENT: seal})[SEAL_ARGUMENT] == seal
    return unseal(SEAL_KEY, seal, body["cache_salt"]).tenant


def frontend(folder: Path, app: App = echo, *open_routes: str) -> TenantMiddleware:
    return TenantMiddleware(app, settings(folder, *open_routes))


def eventually(condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
    """Waits for a condition by polling."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
