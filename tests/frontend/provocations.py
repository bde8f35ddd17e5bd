"""For each refusal of the frontend, a request that provokes it, whatever client sends the request."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from tenantzone_contract.zone_config.config import CONFIG_KEY
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_runtime.frontend.body.media import slowly_fetched, too_large_image
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Refusal, Scope, Send
from tenantzone_runtime.frontend.responses.engine_refusal import refuse, refuse_answer, refuse_with
from tenantzone_runtime.frontend.transport import connections
from tenantzone_runtime.settings import Bounds
from tests.frontend.harness import PROMPT, echo, give_keys, give_salt_key, give_zones, settings
from tests.frontend.identities import REFUSED as REFUSED_IDENTITIES
from tests.frontend.identities import SECRET, give_files, key_set
from tests.runtime.folders import config, project, zone

HEADER = "x-provoke"
"""The header that names a provocation for `provoking`."""
_TERMS: Mapping[str, Any] = {"requestLimits": {"maxTokens": 7}, "requestPriority": {"min": 0, "max": 0}}

Make = Callable[[Path], App]


def _frontend(folder: Path) -> App:
    return TenantMiddleware(echo, settings(folder))


@dataclass(frozen=True)
class Provocation:
    """A request that is refused, as far as it differs from what the client sends."""

    make: Make = _frontend
    """Makes the application that refuses it."""
    method: str = "POST"
    below: str = ""
    """The part after the path of the client's route."""
    headers: Mapping[str, str] = field(default_factory=lambda: {"authorization": "Bearer acme-key"})
    body: bytes | Mapping[str, Any] = field(default_factory=lambda: PROMPT)
    comes: bool = True
    """Whether its body arrives."""


def _with_terms(folder: Path, **terms: Any) -> App:
    project(folder / "config", {CONFIG_KEY: dump_config(config(2, zone("acme", **terms)))})
    return _frontend(folder)


def _bounded(**bounds: int) -> Make:
    return lambda folder: TenantMiddleware(echo, replace(settings(folder), bounds=Bounds(**bounds)))


def _of_the_engine(status: int, retry_after: int | None = None) -> Make:
    return _in_the_server(lambda: refuse(status, "the engine refuses it", retry_after))


def _in_the_server(refuse_late: Callable[[], Coroutine[Any, Any, None]]) -> Make:
    """The frontend in front of an API server that has a request refused after the frontend has admitted it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked = asyncio.ensure_future(refuse_late())
        while (await receive())["type"] != "http.disconnect":
            pass
        asked.cancel()

    return lambda folder: TenantMiddleware(app, settings(folder))


async def _spend_parsing_budget() -> None:
    refuse_answer(Refusal(422, "parsing_budget", "the answer can't be parsed in time"))


def _known_to_be_full(folder: Path) -> App:
    made = TenantMiddleware(echo, settings(folder))
    made._full_queues.note("acme", Refusal(429, "engine", "the queue is full", headers={"retry-after": "1"}), 3600.0)
    return made


def _naming_models(folder: Path) -> App:
    made = _with_terms(folder, adapters=())
    names = SimpleNamespace(openai_serving_models=SimpleNamespace(base_model_paths=[SimpleNamespace(name="base")]))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await made({**scope, "app": SimpleNamespace(state=names)}, receive, send)

    return app


def _failing(folder: Path) -> App:
    made = TenantMiddleware(echo, settings(folder))

    async def fail() -> None:
        raise RuntimeError("a bug")

    made._active_config.look_if_due = fail  # type: ignore[method-assign]
    return made


def _failing_at_bodies(folder: Path) -> App:
    made = TenantMiddleware(echo, settings(folder))

    def fail(*_: object) -> Any:
        raise RuntimeError("a bug")

    made._intake._work = fail  # type: ignore[method-assign]
    return made


def _by(identity: Any) -> Make:
    def make(folder: Path) -> App:
        give_zones(folder, "acme", generation=2, identity=identity)
        give_files(folder, secret=SECRET, **{"jwks.json": key_set()})
        return _frontend(folder)

    return make


def _headers(**more: str) -> dict[str, str]:
    return {"authorization": "Bearer acme-key", **{name.replace("_", "-"): value for name, value in more.items()}}


PROVOCATIONS: dict[tuple[str, int], Provocation] = {
    ("no_key", 401): Provocation(headers={}),
    ("several_keys", 401): Provocation(headers=_headers(api_key="burst-key")),
    ("unknown_key", 401): Provocation(headers={"authorization": "Bearer guessed"}),
    ("no_zone", 403): Provocation(headers={"authorization": "Bearer stray-key"}),
    ("unknown_route", 404): Provocation(below="/secrets"),
    ("wrong_method", 405): Provocation(method="DELETE"),
    ("closed_route", 403): Provocation(below="/render"),
    ("malformed_body", 400): Provocation(body=b"{"),
    ("compressed_body", 415): Provocation(headers=_headers(content_encoding="gzip")),
    ("duplicate_header", 400): Provocation(headers=_headers(content_length="9", transfer_encoding="chunked")),
    ("large_body", 413): Provocation(headers=_headers(content_length=str(2**40))),
    ("slow_body", 408): Provocation(comes=False),
    ("complex_body", 400): Provocation(body=b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"),
    ("complex_grammar", 400): Provocation(body={**PROMPT, "guided_regex": "a{5000}"}),
    ("large_media", 400): Provocation(body={**PROMPT, "mm_processor_kwargs": {"size": 10**9}}),
    ("large_media", 413): Provocation(make=_in_the_server(lambda: refuse_with(too_large_image(Bounds())))),
    ("large_media", 422): Provocation(make=_in_the_server(lambda: refuse_with(slowly_fetched(120)))),
    ("parsing_budget", 422): Provocation(make=_in_the_server(_spend_parsing_budget)),
    ("many_prompts", 400): Provocation(body={"prompt": ["hello"] * 1000}),
    ("unsupported_field", 400): Provocation(body={**PROMPT, "kv_hints": {"a": 1}}),
    ("model", 404): Provocation(make=_naming_models, body={**PROMPT, "model": "other"}),
    ("request_limits", 400): Provocation(
        make=lambda folder: _with_terms(folder, **_TERMS), body={**PROMPT, "max_tokens": 8}
    ),
    ("request_priority", 400): Provocation(
        make=lambda folder: _with_terms(folder, **_TERMS), body={**PROMPT, "max_tokens": 1, "priority": 1}
    ),
    ("user", 400): Provocation(
        make=lambda folder: _with_terms(folder, fairness={"header": "x-user-id"}),
        headers=_headers(x_user_id="\xe9"),
    ),
    ("tenant_requests", 429): Provocation(make=_bounded(max_tenant_requests=0)),
    ("tenant_bodies", 429): Provocation(make=_bounded(max_tenant_body_bytes=0)),
    ("all_bodies", 503): Provocation(make=_bounded(max_held_body_bytes=0)),
    ("full_queue", 429): Provocation(make=_known_to_be_full),
    ("engine", 400): Provocation(make=_of_the_engine(400)),
    ("engine", 403): Provocation(make=_of_the_engine(403)),
    ("engine", 429): Provocation(make=_of_the_engine(429, 1)),
    ("engine", 503): Provocation(make=_of_the_engine(503)),
    ("failed", 400): Provocation(make=_failing_at_bodies),
    ("failed", 503): Provocation(make=_failing),
    ("large_head", 431): Provocation(make=lambda _: connections._refuse_head),
    ("connections", 503): Provocation(make=lambda _: connections._refuse_connection),
    ("upgrade", 400): Provocation(make=lambda _: connections._refuse_upgrade),
} | {
    (reason, {"repeated_header": 400, "identity_unusable": 503}.get(reason, 401)): Provocation(
        make=_by(identity), headers=request.get("headers", {})
    )
    for reason, identity, request in REFUSED_IDENTITIES
}
"""Provocations by reason and HTTP status."""

UNANSWERED = {"slow_head", "pipelined", "websocket"}
"""Reasons for which the connection is closed, or that no HTTP request has."""


class Provoking:
    """The server for the clients: it provokes the refusal that a request names, and counts them.

    Args:
        folder: a folder for the applications that refuse.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._apps: dict[str, App] = {}
        self.seen: dict[str, list[tuple[int, Mapping[str, str]]]] = {}
        """Status and headers of each answer, by the request's header."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = dict(scope["headers"])[HEADER.encode()].decode()
        reason, _, status = name.partition(" ")[0].partition("-")
        provocation = PROVOCATIONS[reason, int(status)]
        app = self._apps.get(f"{reason}-{status}") or self._make(f"{reason}-{status}", provocation)
        content = provocation.body if isinstance(provocation.body, bytes) else json.dumps(provocation.body).encode()
        incoming: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive_changed() -> Message:
            if not provocation.comes:
                await asyncio.Event().wait()
            return incoming.pop() if incoming else await receive()

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = httpx.Headers(message["headers"])
                self.seen.setdefault(name, []).append((message["status"], headers))
            await send(message)

        while (await receive()).get("more_body", False):
            pass
        headers = [
            (key.encode(), value.encode("latin-1"))
            for key, values in provocation.headers.items()
            for value in values.split("\n")
        ]
        changed = {
            **scope,
            "method": provocation.method,
            "path": scope["path"] + provocation.below,
            "headers": [(b"content-type", b"application/json"), *headers],
        }
        await app(changed, receive_changed, send_noted)

    def _make(self, name: str, provocation: Provocation) -> App:
        folder = self._folder / name
        folder.mkdir()
        give_keys(folder, acme="acme-key", burst="burst-key", stray="stray-key")
        give_salt_key(folder)
        give_zones(folder, "acme", "burst")
        self._apps[name] = made = provocation.make(folder)
        return made
