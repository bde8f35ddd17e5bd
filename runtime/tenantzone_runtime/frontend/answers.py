"""The frontend's own answers, in the error format of the request's API: OpenAI's or Anthropic's."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from tenantzone_runtime.frontend.refusals import Reason
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
"""Anthropic's types by status. Others are an ``invalid_request_error`` or, from 500 on, an ``api_error``."""


def error_body(scope: Scope, status: int, message: str, param: str | None = None) -> bytes:
    """Returns the JSON body of an error, as clients of the request's API expect it.

    Args:
        scope: of the request.
        status: HTTP status.
        message: what is wrong and what to do, for the client.
        param: the field of the request's body that is at fault; None: no field.
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
    """Returns the end of a stream that fails after it has begun.

    Args:
        scope: of the request.
        body: of the error, from `error_body`.
    """
    return (
        b"event: error\ndata: " + body + b"\n\n" if is_anthropic(scope) else b"data: " + body + b"\n\ndata: [DONE]\n\n"
    )


def is_anthropic(scope: Scope) -> bool:
    """Whether the request is for Anthropic's API. All other routes have OpenAI's error format."""
    path = routed_path(scope["path"], scope.get("root_path", ""))
    return path == _ANTHROPIC_PATH or path.startswith(_ANTHROPIC_PATH + "/")


class Refusal(Exception):
    """A request that the frontend refuses.

    Args:
        status: HTTP status.
        reason: for the metric of refusals.
        message: what is wrong and what to do, for the client.
        param: the field of the body that is at fault.
        headers: further response headers.
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
        """Returns the JSON body, in the error format of the request's API."""
        return error_body(scope, self.status, str(self), self.param)

    async def send(self, scope: Scope, send: Send) -> None:
        """Answer the request with this refusal."""
        body = self.body(scope)
        headers = {"content-type": "application/json", "content-length": str(len(body)), **self.headers}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})
