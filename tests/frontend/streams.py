"""Streams of several answers that the engine refuses in the middle, as clients of each API read them."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from tenantzone_runtime.frontend.responses.answers import App, Receive, Scope, Send
from tenantzone_runtime.frontend.responses.engine_refusal import accept, refuse

MESSAGE = "the engine refuses it"


def _event(data: Mapping[str, Any]) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _chat(choice: int) -> bytes:
    delta = {"role": "assistant", "content": "a"}
    return _event({
        "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": choice, "delta": delta, "finish_reason": None}],
    })  # fmt: skip


def _completion(choice: int) -> bytes:
    return _event({
        "id": "1", "object": "text_completion", "created": 1, "model": "m",
        "choices": [{"index": choice, "text": "a", "finish_reason": None, "logprobs": None}],
    })  # fmt: skip


def _response(choice: int) -> bytes:
    return _event({
        "type": "response.output_text.delta", "sequence_number": choice, "item_id": "1", "output_index": 0,
        "content_index": 0, "delta": "a", "logprobs": [],
    })  # fmt: skip


def _message(choice: int) -> bytes:
    return _event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}})


PIECES: Mapping[str, Callable[[int], bytes]] = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
    "/v1/responses": _response,
    "/v1/messages": _message,
}
"""A function that makes a piece of an answer, by route."""


def refusing(answers: int) -> App:
    """An API server in which each answer of a request is refused after its first piece, all at once.

    Args:
        answers: the number of answers to each request.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        piece = PIECES[scope["path"]]
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for choice in range(answers):
            await accept()
            await send({"type": "http.response.body", "body": piece(choice), "more_body": True})
        refused = [asyncio.create_task(refuse(503, MESSAGE, 1)) for _ in range(answers)]
        while (await receive())["type"] != "http.disconnect":
            pass
        for each in refused:
            each.cancel()
        # vLLM's remaining parts of the other answers, and its end of a stream.
        for choice in range(answers):
            await send({"type": "http.response.body", "body": piece(choice), "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    return app
