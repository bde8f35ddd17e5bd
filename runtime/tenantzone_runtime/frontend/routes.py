"""Declares how the frontend treats each route of vLLM's API server.

All routes of all supported vLLM versions are declared, in all modes of the server. The frontend refuses other routes.
So a route that a later version of vLLM adds stays closed until it is declared here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

WEBSOCKET = "websocket"
"""Value of `Route.method` for a WebSocket route."""


class Access(Enum):
    """Which clients may use a route, and what the frontend does with the request."""

    OPEN = "open"
    """Open to all clients, for probes and public information about the server."""
    KEYED = "keyed"
    """Open to clients that are identified as a tenant. The body is not sealed, because the route uses no KV cache."""
    SEALED = "sealed"
    """Open to clients that are identified as a tenant. The frontend adds the tenant's cache salt and the seal."""
    REFUSED = "refused"
    """Closed to all clients. Either the route affects other tenants, or its requests can't carry the seal."""


@dataclass(frozen=True, slots=True)
class Route:
    """One route of vLLM's API server, and how the frontend treats it.

    ``reason`` states why the route is refused, and what to do instead.
    """

    method: str
    path: str
    """The path as vLLM declares it, possibly with ``{parameters}``."""
    access: Access
    reason: str = ""
    refused_fields: Mapping[str, str] = field(default_factory=dict)
    """Fields that a sealed route's body may not have, each with the reason for the client."""
    takes_arguments: bool = True
    """Whether a sealed route's body has the field ``vllm_xargs`` for the seal; if not, see `request_context`."""
    brings_media: bool = False
    """Whether the body may contain images, sounds or videos, and so may be larger than a body of text."""
    since: str = ""
    """The first vLLM version with the route; empty if all supported versions have it."""


MACHINERY = dict.fromkeys(
    ("kv_transfer_params", "ec_transfer_params", "kv_hints", "kv_cache_report_mode"),
    "it controls internals of the engine, such as where the engine fetches blocks; omit it",
)
"""Fields that tenants may not set in a sealed route's body or in its ``vllm_xargs``, each with the reason."""
_NO_PLUGINS = MACHINERY | {
    "data": "it is for an engine plugin, and the frontend can't check its content; send 'input' or 'messages'"
}
_NO_STORED_RESPONSES = MACHINERY | {
    "previous_response_id": "stored responses are shared between tenants; send the conversation in 'input'",
    "background": "stored responses are shared between tenants; wait for the answer or use 'stream'",
}

_OPEN = (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping"), ("GET", "/version"))

_KEYED = (
    ("GET", "/v1/models"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/tokenizer_info"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/docs/oauth2-redirect"),
    ("GET", "/redoc"),
)

# Each route has a field `cache_salt`, which vLLM passes on to the engine; most routes also have `vllm_xargs`.
_SEALED: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("/v1/chat/completions", MACHINERY),
    ("/v1/chat/completions/batch", MACHINERY),
    ("/v1/completions", MACHINERY),
    ("/v1/responses", _NO_STORED_RESPONSES),
    ("/v1/messages", MACHINERY),
    ("/v1/embeddings", MACHINERY),
    ("/classify", MACHINERY),
    ("/pooling", _NO_PLUGINS),
)
_WITHOUT_MEDIA = {"/v1/completions"}
_WITHOUT_ARGUMENTS = {"/v1/embeddings", "/classify", "/pooling"}

_REFUSED: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "it shows the activity of all tenants; scrape the admin port, or list the path in TENANTZONE_OPEN_ROUTES",
        (("GET", "/metrics"), ("GET", "/load"), ("GET", "/kv_event_sources"), ("GET", "/server_info")),
    ),
    (
        "stored responses are shared between tenants; keep the answer of POST /v1/responses",
        (("GET", "/v1/responses/{response_id}"), ("POST", "/v1/responses/{response_id}/cancel")),
    ),
    (
        "its requests can't carry the tenant's seal; use /v1/chat/completions or /v1/completions",
        (
            ("POST", "/v1/systemone"),
            ("POST", "/v1/decisions"),
            ("POST", "/generative_scoring"),
            ("POST", "/invocations"),
            ("POST", "/cohere/v2/chat"),
            ("POST", "/cohere/v2/chat/render"),
        ),
    ),
    (
        "it is a session, which keeps its blocks while it waits for its client, and no queue limit or grace of a "
        "zone ends that; send the whole sound in a message of /v1/chat/completions",
        ((WEBSOCKET, "/v1/realtime"),),
    ),
    (
        "its body is a form with a file, and the frontend reads JSON; send the audio within /v1/chat/completions",
        (("POST", "/v1/audio/transcriptions"), ("POST", "/v1/audio/translations")),
    ),
    (
        "it creates requests from lists that the frontend does not count; use /v1/embeddings, /classify or /pooling",
        (
            ("POST", "/v2/embed"),
            ("POST", "/score"),
            ("POST", "/v1/score"),
            ("POST", "/rerank"),
            ("POST", "/v1/rerank"),
            ("POST", "/v2/rerank"),
        ),
    ),
    (
        "disaggregated serving moves blocks that zones do not account for; use /v1/chat/completions or /v1/completions",
        (
            ("POST", "/inference/v1/generate"),
            ("POST", "/inference/v1/abort_requests"),
            ("POST", "/abort_requests"),
            ("POST", "/v1/chat/completions/render"),
            ("POST", "/v1/completions/render"),
            ("POST", "/v1/messages/render"),
            ("POST", "/v1/responses/render"),
            ("POST", "/v1/chat/completions/derender"),
            ("POST", "/v1/completions/derender"),
        ),
    ),
    (
        "it changes or stops the engine for all tenants; ask the server's administrator to do it",
        (
            ("POST", "/v1/load_lora_adapter"),
            ("POST", "/v1/unload_lora_adapter"),
            ("POST", "/adapters"),
            ("DELETE", "/adapters/{adapter_name}"),
            ("POST", "/start_profile"),
            ("POST", "/stop_profile"),
            ("POST", "/reset_prefix_cache"),
            ("POST", "/reset_mm_cache"),
            ("POST", "/reset_encoder_cache"),
            ("POST", "/collective_rpc"),
            ("POST", "/sleep"),
            ("POST", "/release_kv_cache_memory"),
            ("POST", "/wake_up"),
            ("GET", "/is_sleeping"),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("GET", "/is_paused"),
            ("POST", "/init_weight_transfer_engine"),
            ("POST", "/shutdown_weight_transfer_engine"),
            ("POST", "/start_weight_update"),
            ("POST", "/start_draft_weight_update"),
            ("POST", "/update_weights"),
            ("POST", "/finish_weight_update"),
            ("POST", "/update_weight_version"),
            ("GET", "/weight_info"),
            ("POST", "/weight_checker"),
            ("GET", "/get_world_size"),
            ("POST", "/scale_elastic_ep"),
            ("POST", "/is_scaling_elastic_ep"),
            ("POST", "/fault_tolerance/apply"),
            ("GET", "/fault_tolerance/status"),
        ),
    ),
)

_SINCE = {
    "/v1/systemone": "0.32",
    "/inference/v1/abort_requests": "0.32",
    "/shutdown_weight_transfer_engine": "0.32",
    "/weight_checker": "0.32",
    "/v1/decisions": "0.33",
}

ROUTES: tuple[Route, ...] = (
    *(Route(method, path, Access.OPEN) for method, path in _OPEN),
    *(Route(method, path, Access.KEYED) for method, path in _KEYED),
    *(
        Route(
            "POST",
            path,
            Access.SEALED,
            refused_fields=fields,
            takes_arguments=path not in _WITHOUT_ARGUMENTS,
            brings_media=path not in _WITHOUT_MEDIA,
        )
        for path, fields in _SEALED
    ),
    *(
        Route(method, path, Access.REFUSED, reason, since=_SINCE.get(path, ""))
        for reason, group in _REFUSED
        for method, path in group
    ),
)


class RouteTable:
    """Finds the declared routes of a path.

    Args:
        open_routes: paths whose GET routes are opened to all clients, although they are keyed or refused by default.

    Raises:
        ValueError: a path is unknown, or has no GET route.
    """

    def __init__(self, open_routes: Iterable[str] = ()) -> None:
        opened = frozenset(open_routes)
        self._exact: dict[str, tuple[Route, ...]] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        for route in ROUTES:
            if "{" in route.path:
                self._patterns.append((_pattern(route.path), route))
                continue
            if route.path in opened and route.method == "GET":
                route = Route("GET", route.path, Access.OPEN)
            self._exact[route.path] = (*self._exact.get(route.path, ()), route)
        readable = {path for path, routes in self._exact.items() if any(route.method == "GET" for route in routes)}
        for path in sorted(opened - readable):
            raise ValueError(
                f"TENANTZONE_OPEN_ROUTES: {path!r} can't be opened; choose from {', '.join(sorted(readable))}"
            )

    def at(self, path: str) -> tuple[Route, ...]:
        """Returns the routes of a path, one for each method; empty if the path matches no declared route exactly."""
        return self._exact.get(path) or tuple(route for pattern, route in self._patterns if pattern.fullmatch(path))


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)))


def routed_path(path: str, root_path: str) -> str:
    """Returns a request's path without ``root_path``, the prefix under which the application is mounted."""
    if root_path and path.startswith(root_path) and path.removeprefix(root_path)[:1] in ("", "/"):
        return path.removeprefix(root_path)
    return path
