"""Makes the frontend's error responses, in the format of the request's API: OpenAI's or Anthropic's."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from tenantzone_runtime.frontend.responses.refusals import Reason
from tenantzone_runtime.frontend.routes import routed_path

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ERROR_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    415: "UnsupportedMediaTypeError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    431: "RequestHeadersTooLargeError",
    500: "InternalServerError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}
_ANTHROPIC_PATH = "/v1/messages"
_ANTHROPIC_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""Anthropic's error types by status; any other status is ``invalid_request_error`` or, from 500 on, ``api_error``."""


def error_body(scope: Scope, status: int, message: str, param: str | None = None) -> bytes:
    """Returns the JSON body of an error, in the format of the request's API.

    Args:
        scope: the request's ASGI scope.
        status: the HTTP status.
        message: the error message, which says what the client should change.
        param: the invalid field of the request's body; None if the error is not about a field.
    """
    error: dict[str, Any]
    if is_anthropic(scope):
        other = "invalid_request_error" if status < 500 else "api_error"
        error = {"type": _ANTHROPIC_ERROR_TYPES.get(status, other), "message": message}
        return json.dumps({"type": "error", "error": error if param is None else {**error, "param": param}}).encode()
    other = "BadRequestError" if status < 500 else "InternalServerError"
    error = {"message": message, "type": _ERROR_TYPES.get(status, other), "param": param, "code": status}
    return json.dumps({"error": error}).encode()


def error_event(scope: Scope, body: bytes) -> bytes:
    """Returns the bytes that end a stream of server-sent events with an error.

    Args:
        scope: the request's ASGI scope.
        body: the error's JSON body, from `error_body`.
    """
    return (
        b"event: error\ndata: " + body + b"\n\n" if is_anthropic(scope) else b"data: " + body + b"\n\ndata: [DONE]\n\n"
    )


def is_anthropic(scope: Scope) -> bool:
    """Returns whether the request is for Anthropic's API; all other routes use OpenAI's error format."""
    path = routed_path(scope["path"], scope.get("root_path", ""))
    return path == _ANTHROPIC_PATH or path.startswith(_ANTHROPIC_PATH + "/")


class Refusal(Exception):
    """Raised to refuse a request with an error response.

    Args:
        status: the HTTP status.
        reason: the machine-readable reason, for the metric of refusals.
        message: the error message, which says what the client should change.
        param: the invalid field of the request's body; None if the error is not about a field.
        headers: additional response headers.
    """

    def __init__(
        self,
        status: int,
        reason: Reason,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.param = param
        self.headers = headers or {}

    def body(self, scope: Scope) -> bytes:
        """Returns the response's JSON body, in the error format of the request's API."""
        return error_body(scope, self.status, str(self), self.param)

    async def send(self, scope: Scope, send: Send) -> None:
        """Send this refusal to the client as the complete response."""
        body = self.body(scope)
        headers = {"content-type": "application/json", "content-length": str(len(body)), **self.headers}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})
