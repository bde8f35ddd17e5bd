"""Keeps from tenants what the server's own failures tell of its insides.

Where vLLM meets a request that it did not foresee, the client gets 500 and the text of Python's exception: classes,
attributes, paths. Some of these vLLM answers itself, others come as exceptions past the door to what stands around it.
All that is for whoever runs the engine, and stands in the log; the tenant is told that it happened.
"""

import json
import logging
import traceback

from tenantzone_runtime.door.answers import App, Message, Receive, Refusal, Scope, Send, error_body
from tenantzone_runtime.door.refusals import count_refusal
from tenantzone_runtime.seal import without_seals

FAILED = "The server failed at this request; what happened is in its log"

_log = logging.getLogger(__name__)
_LONGEST_LOGGED = 2000
_EVENT = b"data: "
_SIGNS = (b'"code":500', b'"code": 500', b'"internal_error"')
"""One is in each event of a failure; the last is how the routes that are like Anthropic's say it."""
_READ_BODIES = (
    ("fastapi.", "request_body_to_args"),
    ("vllm.entrypoints.", "to_chat_completion_request"),
    ("vllm.entrypoints.", "construct_input_messages"),
    ("vllm.", "_parse_chat_message_content"),
    # Its name since 0.33.
    ("vllm.", "parse_chat_message_content"),
)
"""Functions, by the beginning of their module's name, that make of a body what its route takes, and nothing else:
FastAPI's for the body's model, and vLLM's for conversations that come in another form than chat completions, and for
each message of a conversation."""


def discreet(app: App) -> App:
    """The application, whose answers of status 500, and events of a stream that say the same, are told by the door."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Discretion(scope, send)
        try:
            await app(scope, receive, answer.send)
        except Exception as error:
            # What stands around the door would tell the client of it.
            if answer.has_begun:
                raise
            if _is_of_the_body(error):
                await _refuse_body(scope, send)
            else:
                await answer.fail(error)

    return call


def _is_of_the_body(error: Exception) -> bool:
    """Whether it was raised while the request's body was read, before anything was done with what it says."""
    return any(
        frame.f_code.co_name == name and frame.f_globals.get("__name__", "").startswith(module)
        for frame, _ in traceback.walk_tb(error.__traceback__)
        for module, name in _READ_BODIES
    )


async def _refuse_body(scope: Scope, send: Send) -> None:
    refusal = Refusal(
        400, "malformed_body", "A field of the request's body has a value of a kind that it can't have; check them"
    )
    count_refusal(refusal.reason)
    await refusal.send(scope, send)


class _Discretion:
    """The answer to one request.

    Args:
        scope: of the request.
        send: takes the answer's messages.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._path = str(scope["path"])
        self._send = send
        self._failure: bytes | None = None
        """What has come of the body of an answer that is to be replaced."""
        self.has_begun = False
        """Whether the client has been sent something."""

    async def send(self, message: Message) -> None:
        """Pass on a message of the application's, or what is told in its place."""
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
        """Tell the client that the application has failed, before it answered."""
        _log.error("vLLM failed at a request to %s", self._path, exc_info=error)
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
        """A line of a stream; one that says of what the server failed becomes one that says that it did."""
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
            # vLLM's word. Anthropic's API has this one.
            shown["type"] = "api_error"
        return _EVENT + json.dumps({**event, "error": shown}).encode()

    def _note(self, told: bytes) -> None:
        text = without_seals(told[:_LONGEST_LOGGED].decode(errors="replace"))
        _log.error("vLLM failed at a request to %s: %r", self._path, text)
