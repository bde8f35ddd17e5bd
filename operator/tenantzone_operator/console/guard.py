"""Restricts the console to users who can forward a port to the pod, and refuses requests from other web pages."""

from collections.abc import Awaitable, Callable

from aiohttp import web

ADDRESS = "127.0.0.1"
"""Loopback address, which only containers of the pod and port-forwards can reach."""

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
    """Middleware that refuses requests from other web pages and hosts, and sets the security headers."""
    response = _refusal(request)
    if response is None:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.reason}\n")
    response.headers.update(_HEADERS)
    # Close the connection, because an open connection keeps a task running, and kopf waits for all tasks to end.
    response.force_close()
    return response


def _refusal(request: web.Request) -> web.StreamResponse | None:
    if request.method not in _METHODS:
        return web.Response(status=405, headers={"Allow": ", ".join(_METHODS)}, text="this page is read-only\n")
    if not is_own_host(request.headers.get("Host", "")):
        # Either another domain resolves to this address (DNS rebinding), or the port-forward listens on more addresses.
        return web.Response(status=403, text="open this page as http://localhost:PORT with kubectl port-forward\n")
    if not _is_from_here(request):
        return web.Response(status=403, text="other sites may not use this page\n")
    return None


def is_own_host(host: str) -> bool:
    """Returns whether a Host header names this machine. Any port is valid, because the user chooses the local port."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "0"
    return name.lower() in _HOSTS and port.isascii() and port.isdigit()


def _is_from_here(request: web.Request) -> bool:
    """Returns whether a user or this page sent the request, judging by headers that only browsers send."""
    asked_by = request.headers.get("Sec-Fetch-Site", "none")
    return asked_by in ("none", "same-origin") or request.headers.get("Sec-Fetch-Mode") == "navigate"
