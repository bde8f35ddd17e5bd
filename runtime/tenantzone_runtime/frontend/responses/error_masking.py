"""Error masking: hides the server's internals from tenants when the server fails to process a request.

Without masking, the client would get a 500 with the text of Python's exception, which names classes, attributes and
paths. vLLM answers some exceptions itself. Others pass through the frontend to the ASGI server. In both cases, this
module logs the details, and only reports to the client that the request failed.
"""

import json
import logging
import traceback

from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Refusal, Scope, Send, error_body
from tenantzone_runtime.frontend.responses.refusals import count_refusal
from tenantzone_runtime.seal import without_seals

FAILED = "The server failed to process this request; its log contains the cause"

_log = logging.getLogger(__name__)
_LONGEST_LOGGED = 2000
_EVENT = b"data: "
_SIGNS = (b'"code":500', b'"code": 500', b'"internal_error"')
"""Texts that identify events with an internal error in a stream. The last text is used on routes like Anthropic's."""
_READ_BODIES = (
    ("fastapi.", "request_body_to_args"),
    ("vllm.entrypoints.", "to_chat_completion_request"),
    ("vllm.entrypoints.", "construct_input_messages"),
    ("vllm.", "_parse_chat_message_content"),
    # Since vLLM 0.33, the function above has this name.
    ("vllm.", "parse_chat_message_content"),
)
"""Functions that only parse a body. Each entry has the beginning of the module's name, and the function's name.
FastAPI's function parses the body into the route's input. vLLM's functions convert other formats of conversations to
chat completions, and parse each message of a conversation."""


def masked(app: App) -> App:
    """Wrap the application so that its 500 answers, and the error events in its streams, have no details."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        answer = _MaskedAnswer(scope, send)
        try:
            await app(scope, receive, answer.send)
        except Exception as error:
            # Answer here, because the ASGI server would send the details to the client.
            if answer.has_begun:
                raise
            if _is_of_the_body(error):
                await _refuse_body(scope, send)
            else:
                await answer.fail(error)

    return call


def _is_of_the_body(error: Exception) -> bool:
    """Returns whether an error was raised while the request's body was being parsed."""
    return any(
        frame.f_code.co_name == name and frame.f_globals.get("__name__", "").startswith(module)
        for frame, _ in traceback.walk_tb(error.__traceback__)
        for module, name in _READ_BODIES
    )


async def _refuse_body(scope: Scope, send: Send) -> None:
    refusal = Refusal(
        400, "malformed_body", "A field of the request's body has a value of the wrong type; check the fields"
    )
    count_refusal(refusal.reason)
    await refusal.send(scope, send)


class _MaskedAnswer:
    """The answer to one request, with internal errors replaced.

    Args:
        scope: the request's ASGI scope.
        send: sends the answer's ASGI messages to the client.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._path = str(scope["path"])
        self._send = send
        self._failure: bytes | None = None
        """The collected body of a 500 answer, which is logged and replaced; None for other answers."""
        self.has_begun = False
        """Whether a message was sent to the client."""

    async def send(self, message: Message) -> None:
        """Send a message of the application, or its replacement, to the client."""
        if message["type"] == "http.response.start" and message["status"] == 500:
            self._failure = b""
        elif self._failure is None:
            self.has_begun = True
            await self._send(self._without_failures(message))
        else:
            self._failure += message.get("body", b"")[:_LONGEST_LOGGED]
            if not message.get("more_body", False):
                self._note(self._failure)
                await self._tell()

    async def fail(self, error: Exception) -> None:
        """Log an error that the application raised before it answered, and answer with a 500."""
        _log.error("vLLM failed to process a request to %s", self._path, exc_info=error)
        await self._tell()

    async def _tell(self) -> None:
        self.has_begun = True
        body = error_body(self._scope, 500, FAILED)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": 500, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _without_failures(self, message: Message) -> Message:
        body = message.get("body", b"")
        if not any(sign in body for sign in _SIGNS):
            return message
        return {**message, "body": b"\n".join(map(self._without_failure, body.split(b"\n")))}

    def _without_failure(self, line: bytes) -> bytes:
        """Returns a line of a stream. If the line is an event with an internal error, its details are removed."""
        if not line.startswith(_EVENT):
            return line
        try:
            event = json.loads(line.removeprefix(_EVENT))
        except (ValueError, RecursionError):
            return line
        error = event.get("error") if isinstance(event, dict) else None
        if not isinstance(error, dict) or not (error.get("code") == 500 or error.get("type") == "internal_error"):
            return line
        self._note(line)
        shown = {**error, "message": FAILED}
        if error.get("type") == "internal_error":
            # Replace vLLM's error type by that of Anthropic's API.
            shown["type"] = "api_error"
        return _EVENT + json.dumps({**event, "error": shown}).encode()

    def _note(self, reported: bytes) -> None:
        text = without_seals(reported[:_LONGEST_LOGGED].decode(errors="replace"))
        _log.error("vLLM failed to process a request to %s: %r", self._path, text)
