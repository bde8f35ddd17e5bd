"""The front door's own answers, in the shape of OpenAI's errors as vLLM gives them."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from tenantzone_runtime.door.refusals import Reason

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
    413: "RequestTooLargeError",
    415: "UnsupportedMediaTypeError",
    503: "ServiceUnavailableError",
}


class Refusal(Exception):
    """A request that the door does not let through.

    Args:
        status: HTTP status.
        reason: for whoever counts refusals.
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

    async def send(self, send: Send) -> None:
        """Answer the request with this refusal."""
        error = {
            "message": str(self),
            "type": _ERROR_TYPES[self.status],
            "param": self.param,
            "code": self.status,
        }
        body = json.dumps({"error": error}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **self.headers}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})
