"""The frontend's ASGI middleware, which binds each request to its tenant, or refuses the request."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.frontend.active_config import ActiveConfig
from tenantzone_runtime.frontend.binding import bind, check_fields, without_seal
from tenantzone_runtime.frontend.body.limits import ClientDisconnected
from tenantzone_runtime.frontend.body.sampling import is_in_pieces, prompt_logprobs_field
from tenantzone_runtime.frontend.body.terms import check_terms
from tenantzone_runtime.frontend.following import following
from tenantzone_runtime.frontend.identities.asking import unauthorized, without_headers
from tenantzone_runtime.frontend.in_flight import Held, InFlight
from tenantzone_runtime.frontend.intake import Intake
from tenantzone_runtime.frontend.recorder import Recorder, recorded
from tenantzone_runtime.frontend.request_context import RequestContext
from tenantzone_runtime.frontend.responses.adapters import MODELS_PATH, check_model, listing, usable_models
from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Refusal, Scope, Send
from tenantzone_runtime.frontend.responses.api_errors import in_api_format
from tenantzone_runtime.frontend.responses.engine_refusal import refusable
from tenantzone_runtime.frontend.responses.error_masking import masked
from tenantzone_runtime.frontend.responses.failures import failure
from tenantzone_runtime.frontend.responses.full_queues import FullQueues
from tenantzone_runtime.frontend.responses.headers import check_headers
from tenantzone_runtime.frontend.responses.refusals import count_refusal
from tenantzone_runtime.frontend.routes import Access, Route, RouteTable, routed_path
from tenantzone_runtime.frontend.transport.opening import open_all, open_for_serving
from tenantzone_runtime.frontend.users import naming_users, user_of
from tenantzone_runtime.settings import SEAL_KEY, STATE_DIR, Settings, read_settings

if TYPE_CHECKING:
    from tenantzone_runtime.frontend.tracing import Tracing

_log = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]


class TenantMiddleware:
    """Binds each request to its tenant. The pool's config selects how tenants are identified, by default by API keys.

    The frontend uses the config that the engine enforces and publishes. With a config, a tenant needs a zone. If the
    pool registers unknown tenants, the scheduler creates the zone at the tenant's first request. As long as the engine
    has no config, the mounted files decide:

    - With no files, requests pass unchanged, as with stock vLLM.
    - With API keys, a request needs a key, and belongs to the default zone.
    - With files for another identity, all requests are refused.

    Args:
        app: vLLM's application.
        settings: the process's settings; None to read them from the environment, because vLLM passes no arguments to
            its ``--middleware``.

    Raises:
        ValueError: a setting is invalid, or the seal key or the state folder is not set.
    """

    def __init__(self, app: App, settings: Settings | None = None) -> None:
        self._app = app
        self._formatted_app = in_api_format(app)
        self._masked_app = masked(self._formatted_app)
        self._settings = settings or read_settings(os.environ)
        if not self._settings.seal_key:
            raise ValueError(
                f"{SEAL_KEY} is empty, although the vLLM plugin 'tenantzone' creates the key when vLLM starts. If "
                "VLLM_PLUGINS is set, add 'tenantzone' to it"
            )
        if self._settings.state_dir is None:
            raise ValueError(
                f"{STATE_DIR} is empty, although the vLLM plugin 'tenantzone' creates the folder when vLLM starts"
            )
        self._state_dir = self._settings.state_dir
        open_all()
        self._routes = RouteTable(self._settings.open_routes)
        self._in_flight = InFlight(self._settings.bounds)
        self._intake = Intake(self._settings.bounds)
        self._full_queues = FullQueues()
        self._active_config = ActiveConfig(self._settings, self._state_dir, self._full_queues.forget)
        self._tracing = _tracing()
        self._recorder = _recorder(self._settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            async with following(self._active_config, self._state_dir):
                await self._app(scope, receive, _opening(scope.get("app"), send))
            return
        try:
            # Skip this for open routes such as probes, which must be answered even if the server is very busy.
            if not self._is_open(scope):
                await self._active_config.look_if_due()
        except Exception as error:
            await _refuse(failure(scope, error), scope, send)
            return
        if not self._active_config.is_required:
            app = self._recorded(self._app, scope, "") if scope["type"] == "http" else self._app
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            message = "WebSockets are not supported together with tenant zones"
            await _refuse(Refusal(403, "websocket", message), scope, send)

    def _is_open(self, scope: Scope) -> bool:
        """Returns whether all routes of the request's path are open to all clients."""
        if scope["type"] != "http":
            return False
        routes = self._routes.at(routed_path(scope["path"], scope.get("root_path", "")))
        return bool(routes) and all(route.access is Access.OPEN for route in routes)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        attributes: dict[str, str | int] = {}
        held: Held | None = None
        app = self._masked_app
        asked = scope
        try:
            route = self._route(scope)
            if scope["method"] != "OPTIONS" and route.access is not Access.OPEN:
                identity = self._active_config.identity  # read it once, because another identity may become active
                tenant = self._active_config.tenant_of(scope, identity)
                is_sealed = route.access is Access.SEALED
                if is_sealed:
                    self._full_queues.check(tenant)
                held = self._in_flight.admit(tenant)
                scope = without_headers(scope, identity.secret_headers)
                if route.path == MODELS_PATH:
                    app = listing(app, usable_models(scope, self._active_config.zones.get(tenant)))
                context = RequestContext(held.media, tenant)
                if scope["method"] == "POST":
                    scope, receive = await self._take(scope, receive, route, tenant, held, context)
                    await self._check_still(asked, tenant)
                    app = context.carried_through(app)
                if is_sealed:
                    # Check again, because the engine may have refused another request of the tenant meanwhile.
                    self._full_queues.check(tenant)
                    attributes = self._attributes(tenant)
                    bound_app = context.carried_through(self._recorded(self._formatted_app, scope, tenant))
                    app = masked(refusable(bound_app, _Listener(tenant, held, self._full_queues)))
        except Refusal as refusal:
            await _refuse(refusal, asked, send)
        except ClientDisconnected:
            return
        except Exception as error:
            await _refuse(failure(asked, error), asked, send)
        else:
            if attributes and self._tracing is not None:
                await self._tracing.call(app, scope, receive, send, attributes)
            else:
                await app(scope, receive, send)
        finally:
            if held is not None:
                held.let_go()

    def _recorded(self, app: App, scope: Scope, tenant: str) -> App:
        if self._recorder is None:
            return app
        return recorded(
            app, self._recorder, tenant, _header(scope["headers"], b"authorization"), self._active_config.salt_key
        )

    def _attributes(self, tenant: str) -> dict[str, str | int]:
        """Returns the attributes for the trace of the tenant's request."""
        config = self._active_config.config
        if config is None:
            return {"tenantzone.tenant": tenant}
        return {
            "tenantzone.tenant": tenant,
            # If the tenant has no declared zone, the engine creates a zone with the tenant's name.
            "tenantzone.zone": self._active_config.zones[tenant].name
            if tenant in self._active_config.zones
            else tenant,
            "tenantzone.pool": config.pool.name,
            "tenantzone.pool_namespace": config.pool.namespace,
            "tenantzone.config_generation": config.generation,
        }

    def _route(self, scope: Scope) -> Route:
        method, path = scope["method"], routed_path(scope["path"], scope.get("root_path", ""))
        routes = self._routes.at(path)
        if not routes:
            raise Refusal(404, "unknown_route", f"{path} does not match a route of this server exactly; check the URL")
        # Browsers send an OPTIONS request without a key before some requests. vLLM's CORS middleware answers OPTIONS.
        wanted = {"HEAD": "GET", "OPTIONS": routes[0].method}.get(method, method)
        route = next((route for route in routes if route.method == wanted), None)
        if route is None:
            allowed = ", ".join(route.method for route in routes)
            raise Refusal(405, "wrong_method", f"{path} accepts {allowed}, not {method}", headers={"allow": allowed})
        if route.access is Access.REFUSED:
            raise Refusal(403, "closed_route", f"{method} {path} is closed to tenants: {route.reason}")
        return route

    async def _check_still(self, scope: Scope, tenant: str) -> None:
        """Check that the request still belongs to the tenant. The key may have been revoked while the body arrived.

        Raises:
            Refusal: the request now belongs to no tenant, or to another tenant.
        """
        await self._active_config.look_if_due()
        if self._active_config.tenant_of(scope, self._active_config.identity) != tenant:
            raise unauthorized(
                "unknown_key", "The tenant of this request changed while the server received it; repeat the request"
            )

    async def _take(
        self, scope: Scope, receive: Receive, route: Route, tenant: str, held: Held, context: RequestContext
    ) -> tuple[Scope, Receive]:
        """Read and check the body. Returns the scope for vLLM, and a ``receive`` that returns the bound body."""
        check_headers(scope["headers"])
        declared_length = _header(scope["headers"], b"content-length")
        zone = self._active_config.zones.get(tenant)
        remake = partial(self._remake, route, tenant, zone, usable_models(scope, zone), scope["headers"], context)
        limit = None if zone is None else zone.request_limits.body_bytes
        body = await self._intake.take(receive, declared_length, route, held, remake, limit)
        ours = frozenset({b"content-length", b"transfer-encoding"}) | naming_users(zone)
        headers = [*without_headers(scope, ours)["headers"]]
        headers.append((b"content-length", str(len(body)).encode()))
        return {**scope, "headers": headers}, _replay(body, receive)

    def _remake(
        self,
        route: Route,
        tenant: str,
        zone: ZoneConfig | None,
        usable: frozenset[str] | None,
        headers: Headers,
        context: RequestContext,
        body: bytes,
        parsed: dict[str, Any],
        answers: int,
    ) -> bytes:
        check_model(parsed, usable)
        if route.access is not Access.SEALED:
            return body
        check_fields(parsed, route.refused_fields)
        check_terms(parsed, headers, route.path, zone)
        context.answers_in_one_piece = 0 if is_in_pieces(parsed, route.path) else answers
        context.prompt_logprobs_field = prompt_logprobs_field(parsed)
        if self._active_config.config is None:
            return without_seal(body, parsed)
        user = user_of(headers, zone, self._settings.seal_key)
        return bind(
            body,
            parsed,
            self._settings.seal_key,
            self._active_config.salt_key,
            tenant,
            user,
            context=context,
            takes_arguments=route.takes_arguments,
        )


class _Listener:
    """Reports the engine's decision on a request to the in-flight quota and to `FullQueues`.

    Args:
        tenant: the tenant of the request.
        held: the request's part of the in-flight quota.
        full_queues: records refusals because of a full queue.
    """

    def __init__(self, tenant: str, held: Held, full_queues: FullQueues) -> None:
        self._tenant = tenant
        self._full_queues = full_queues
        self.is_ready = held.is_ready

    def is_refused(self, refusal: Refusal, seconds: float) -> None:
        """See `engine_refusal.RefusalListener`."""
        self._full_queues.note(self._tenant, refusal, seconds)


async def _refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    """Count a refusal, and send it to the client."""
    count_refusal(refusal.reason)
    if scope["type"] == "http":
        await refusal.send(scope, send)
    else:
        # Closing a WebSocket before it is accepted makes the server answer with 403.
        await send({"type": "websocket.close", "code": 1008, "reason": str(refusal)})


def _tracing() -> Tracing | None:
    """Returns the tracing of requests; None if OpenTelemetry is not installed."""
    try:
        from tenantzone_runtime.frontend.tracing import Tracing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        return None
    return Tracing()


def _recorder(settings: Settings) -> Recorder | None:
    if settings.record_dir is None:
        return None
    return Recorder(settings.record_dir, settings.record_max_bytes, settings.record_keep)


def _header(headers: Headers, name: bytes) -> bytes | None:
    return next((value for key, value in headers if key.lower() == name), None)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Returns a ``receive`` that first returns the new body, and then the client's later messages (its disconnect)."""
    replayed = False

    async def receive_replayed() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_replayed


def _opening(application: Any, send: Send) -> Send:
    """Returns a ``send`` that runs the start-up hooks when vLLM's application reports that it has started."""

    async def opened(message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            open_for_serving(application)
        await send(message)

    return opened
