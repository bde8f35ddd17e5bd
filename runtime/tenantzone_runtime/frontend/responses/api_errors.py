"""Converts vLLM's error responses to the error format of the request's API.

Most of vLLM's errors have OpenAI's format. Two kinds must be converted: errors of FastAPI, on which vLLM is built, such
as ``{"detail": "Not Found"}`` for a route that the engine does not serve, and errors on Anthropic's routes, some of
which have OpenAI's format or error types.
"""

import json
from collections.abc import Mapping
from typing import Any

from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Scope, Send, error_body, is_anthropic
from tenantzone_runtime.frontend.routes import routed_path

_REPLACED = frozenset({b"content-length", b"content-type"})


def in_api_format(app: App) -> App:
    """Wrap the application so that its error responses have the format of the request's API."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, _Errors(scope, send).send)

    return call


class _Errors:
    """Converts the response to one request if the response is an error.

    Args:
        scope: the request's ASGI scope.
        send: sends the response's ASGI messages to the client.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._head: Message | None = None
        """The start message of an error response whose body is not complete yet."""
        self._body = b""

    async def send(self, message: Message) -> None:
        """Pass on a message from the application, or collect the body of an error response."""
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._head = message
        elif self._head is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_error(self._head)

    async def _send_error(self, head: Message) -> None:
        headers = [(name.lower(), value) for name, value in head["headers"]]
        body = reformatted(self._scope, head["status"], self._body, dict(headers))
        if body is None:
            body = self._body
        else:
            headers = [header for header in headers if header[0] not in _REPLACED]
            headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self._send({**head, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def reformatted(scope: Scope, status: int, body: bytes, headers: Mapping[bytes, bytes]) -> bytes | None:
    """Convert the body of an error response to the format of the request's API.

    Args:
        scope: the request's ASGI scope.
        status: the HTTP status.
        body: the body from the application.
        headers: the response's headers, by lower-case names.

    Returns:
        The converted body; None if the body already has the API's format, or has an unknown format.
    """
    try:
        parsed: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    error = parsed.get("error")
    if isinstance(error, dict) and "message" in error:
        param = error.get("param")
        named = param if isinstance(param, str) else None
        return error_body(scope, status, str(error["message"]), named) if is_anthropic(scope) else None
    if "detail" in parsed:
        return error_body(scope, status, _message(scope, status, parsed["detail"], headers))
    return None


def _message(scope: Scope, status: int, detail: object, headers: Mapping[bytes, bytes]) -> str:
    """Returns the error message for the client. FastAPI's short texts for unknown routes and methods are replaced."""
    path = routed_path(scope["path"], scope.get("root_path", ""))
    if (status, detail) == (404, "Not Found"):
        return f"This engine does not serve {path}, possibly because its model has other routes; check the URL"
    if (status, detail) == (405, "Method Not Allowed"):
        allowed = headers.get(b"allow", b"").decode("latin-1")
        return f"{path} accepts {allowed or 'other methods'}, not {scope['method']}"
    return detail if isinstance(detail, str) else json.dumps(detail)
