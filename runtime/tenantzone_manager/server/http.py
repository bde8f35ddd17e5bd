"""The HTTP server: calls as ``POST /v1/CALL`` with JSON, the OpenAPI description, health checks and metrics."""

import logging
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from tenantzone_manager.index.backend import IndexUnavailable
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.server import encoding
from tenantzone_manager.server.access import Authenticator, Caller, Unauthenticated
from tenantzone_manager.server.malformed import MalformedRequests
from tenantzone_manager.server.messages import (
    LARGEST_REQUEST,
    LONG_REQUEST,
    ErrorBody,
    ErrorResponse,
    RequestTooLarge,
    check_values,
)
from tenantzone_manager.server.service import CALLS, Call, Service, code_of

STATUS: Final = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "FAILED_PRECONDITION": 409,
    "INTERNAL": 500,
    "RESOURCE_EXHAUSTED": 413,
    "UNAVAILABLE": 503,
}

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
Handler = Callable[[web.Request], Awaitable[web.Response]]


def application(
    manager: CacheManager, service: Service, authenticator: Authenticator, *, asks_for_certificates: bool = False
) -> web.Application:
    """Returns the HTTP application.

    Args:
        manager: manager whose state is reported.
        service: executes the calls.
        authenticator: identifies callers by their tokens.
        asks_for_certificates: whether a call needs a client certificate, verified by TLS, in addition to its token.
    """
    app = web.Application(client_max_size=LARGEST_REQUEST)
    malformed = MalformedRequests()
    for call in CALLS:
        handler = _handler(call, manager, service, authenticator, malformed)
        app.router.add_post(f"/v1/{call.name}", _certified(call, handler) if asks_for_certificates else handler)
    description = files(__package__).joinpath("openapi.json").read_text()

    async def openapi(_: web.Request) -> web.Response:
        return web.Response(text=description, content_type="application/json")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        # A manager without room for new blocks is still ready, because blocks can be read and removed.
        text = f"{'ok' if manager.is_ready else 'no index'}{': ' if manager.problem else ''}{manager.problem}\n"
        return web.Response(status=200 if manager.is_ready else 503, text=text)

    async def metrics(request: web.Request) -> web.Response:
        try:
            await service.show_in_metrics()
        except IndexUnavailable:
            # Report all metrics except those of accounts.
            manager.metrics.show_accounts({})
        encoder, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encoder(manager.metrics.registry), headers={"Content-Type": content_type})

    app.router.add_get("/openapi.json", openapi)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app


def without_index(problem: Callable[[], str]) -> web.Application:
    """Returns the application that answers while the index is not open yet.

    Args:
        problem: returns the reason why the index is not open.
    """
    app = web.Application()

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=503, text=f"no index: {problem()}\n")

    async def call(_: web.Request) -> web.Response:
        body = _encode(ErrorResponse(error=ErrorBody(code="UNAVAILABLE", message=f"no index: {problem()}")))
        return web.Response(status=503, body=body, content_type="application/json")

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_post("/v1/{call}", call)
    return app


def _handler(
    call: Call, manager: CacheManager, service: Service, authenticator: Authenticator, malformed: MalformedRequests
) -> Handler:
    decode = msgspec.json.Decoder(call.request).decode
    answer = _encoder(call, manager)

    async def handle(request: web.Request) -> web.Response:
        try:
            caller = await authenticator.authenticate(_token(request))
            body = await request.read() or b"{}"
            # Commas separate values, but names may also contain commas. Therefore, this number is an upper bound.
            check_values(body.count(b",") + 1)
            if len(body) > LONG_REQUEST:
                await manager.turns.take(caller.turns)
            with malformed.noted(call.name, caller):
                asked = decode(body)
            response = await answer(caller, asked, await service.call(call, caller, asked))
        except web.HTTPRequestEntityTooLarge:
            return _refusal(
                call, RequestTooLarge(f"the request exceeds {LARGEST_REQUEST} bytes; split it into several calls")
            )
        except web.HTTPException:
            raise
        except Exception as error:
            return _refusal(call, error)
        return web.Response(body=response, content_type="application/json")

    return handle


def _certified(call: Call, handler: Handler) -> Handler:
    missing = Unauthenticated(
        "the client certificate is missing; send a certificate signed by a CA in the manager's --client-ca-file"
    )

    async def handle(request: web.Request) -> web.Response:
        if not request.get_extra_info("peercert"):
            return _refusal(call, missing)
        return await handler(request)

    return handle


def _encoder(call: Call, manager: CacheManager) -> Callable[[Caller, Any, Any], Awaitable[bytes]]:
    encoder = encoding.AnswerEncoder(manager.turns, manager.settings.timing.lease)

    async def locations(caller: Caller, request: Any, match: Any) -> bytes:
        matched = encoding.matched_blocks(match, request.query_type == "key")
        return await encoder.match_as_json(caller.turns, match, matched)

    async def started(caller: Caller, _: Any, answer: Any) -> bytes:
        return await encoder.started_as_json(caller.turns, answer)

    async def other(_: Caller, __: Any, answer: Any) -> bytes:
        return _encode(answer)

    return {"GetCacheLocation": locations, "StartWriteCache": started}.get(call.name, other)


def _token(request: web.Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _refusal(call: Call, error: Exception) -> web.Response:
    code = code_of(error)
    if code == "INTERNAL":
        _log.exception("%s failed", call.name, exc_info=error)
    message = str(error) if code != "INTERNAL" else "the call failed; see the manager's log for the reason"
    body = _encode(ErrorResponse(error=ErrorBody(code=code, message=message)))
    return web.Response(body=body, status=STATUS[code], content_type="application/json")
