"""Restricts access to the console: users who can forward a port to the pod, but no other web page in their browser."""

from collections.abc import Awaitable, Callable

from aiohttp import web

ADDRESS = "127.0.0.1"
"""Only the pod's own containers and the API server's port-forward can reach this address."""

_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_METHODS = ("GET", "HEAD")

_HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@web.middleware
async def guarded(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Middleware that refuses all but this page's own requests, and sets the security headers on each answer."""
    response = _refusal(request)
    if response is None:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.reason}\n")
    response.headers.update(_HEADERS)
    # At its end, kopf waits for everything that was started during its run.
    response.force_close()
    return response


def _refusal(request: web.Request) -> web.StreamResponse | None:
    if request.method not in _METHODS:
        return web.Response(status=405, headers={"Allow": ", ".join(_METHODS)}, text="this page is read-only\n")
    if not is_own_host(request.headers.get("Host", "")):
        # A foreign name that points here (DNS rebinding), or a forward that others can reach.
        return web.Response(status=403, text="open it as http://localhost:PORT, by way of kubectl port-forward\n")
    if not _is_from_here(request):
        return web.Response(status=403, text="not for other sites\n")
    return None


def is_own_host(host: str) -> bool:
    """Returns whether a Host header names this machine; any port is accepted, because the forward chooses it."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "0"
    return name.lower() in _HOSTS and port.isascii() and port.isdigit()


def _is_from_here(request: web.Request) -> bool:
    """Returns whether a user or this page sent the request. Browsers say so; other clients need not."""
    asked_by = request.headers.get("Sec-Fetch-Site", "none")
    return asked_by in ("none", "same-origin") or request.headers.get("Sec-Fetch-Mode") == "navigate"
