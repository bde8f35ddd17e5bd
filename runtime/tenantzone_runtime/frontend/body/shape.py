"""Bounds the shape of a request's body: the number of values, their nesting, and the size without media.

A body that is cheap to send can be expensive to read: a megabyte of brackets makes half a million objects, and each is
processed several times before the engine gets the request.
"""

from collections.abc import Mapping
from typing import Any

from tenantzone_runtime.frontend.body.values import (
    MAX_DEPTH,
    TooDeep,
    levels,
    nests_deeper,
    read_text,
    refuse_depth,
    texts_in,
)
from tenantzone_runtime.frontend.responses.answers import Refusal

MAX_VALUES = 2**18
"""Maximum number of objects, lists and members. Each token id of a prompt is a member."""
MAX_MESSAGES = 4096
"""Maximum number of messages of a conversation, or parts of a message; vLLM's event loop reads each several times."""

_MEDIA = frozenset({"image_url", "input_image", "image", "audio_url", "input_audio", "video_url"})
"""The types of message parts that contain an image, a sound or a video."""
_OBJECTS = ("structured_outputs", "response_format", "stream_options")
_CONVERSATIONS = ("messages", "input", "previous_input_messages", "system")
_ARGUMENTS = "arguments"
_BITS = 64
"""Size in bits of the largest integers that vLLM's processes can exchange."""


def check_count(body: bytes) -> None:
    """Check, before it is parsed, that a JSON body does not have too many values.

    It counts the characters that begin or separate values, including those within texts.

    Raises:
        Refusal: it has too many.
    """
    if sum(body.count(character) for character in (b",", b"[", b"{")) > MAX_VALUES:
        raise Refusal(400, "complex_body", f"The request's body has more than {MAX_VALUES} values; send fewer")


def check_depth(raw: bytes, body: Mapping[str, Any]) -> None:
    """Check that a body, and the JSON texts of tool call arguments in it, do not nest too deep.

    Args:
        raw: the body as received.
        body: parsed.

    Raises:
        Refusal: a field nests too deep; the message names it.
    """
    # Each level opens with a bracket, so a long prompt of token ids needs no walk.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
        for name, value in body.items():
            if nests_deeper(value, MAX_DEPTH - 1):
                raise refuse_depth("complex_body", f"'{name[:100]}'", name[:100])
    for name in _CONVERSATIONS:
        for level in levels(body.get(name)):
            if any(_is_deep(each[_ARGUMENTS]) for each in level if isinstance(each, dict) and _ARGUMENTS in each):
                raise refuse_depth("complex_body", f"The JSON text in an '{_ARGUMENTS}' of '{name}'", name)


def _is_deep(arguments: object) -> bool:
    """Whether a tool call's arguments are a JSON text that nests too deep: vLLM parses such a text."""
    if not isinstance(arguments, str) or arguments.count("{") + arguments.count("[") <= MAX_DEPTH:
        return False
    try:
        read_text(arguments)
    except TooDeep:
        return True
    return False


def check_texts(raw: bytes, body: Mapping[str, Any]) -> None:
    """Check that all texts are Unicode: JSON can contain half of a surrogate pair, which has no encoding.

    Args:
        raw: the body as received.
        body: parsed.

    Raises:
        Refusal: a field contains such a text; the message names it.
    """
    if raw.isascii() and b"\\ud" not in raw and b"\\uD" not in raw:
        return
    for name, value in body.items():
        try:
            # Text by text: one call for all of them would hold the interpreter's lock until it ends.
            for text in (name, value) if type(value) not in (dict, list) else (name, *texts_in(value)):
                if type(text) is str and not text.isascii():
                    text.encode()
        except UnicodeEncodeError:
            param = name.encode(errors="replace").decode()
            raise Refusal(
                400, "malformed_body", f"'{param}' has a text with half of a surrogate pair in it", param=param
            ) from None


def check_kinds(body: Mapping[str, Any]) -> None:
    """Check the types of fields that vLLM does not check itself, and the length of conversations.

    Numbers must fit into what one of vLLM's processes can pass to another.

    Raises:
        Refusal: a field has another type, or is too long; the message names it.
    """
    for name, value in body.items():
        if isinstance(value, int) and value.bit_length() >= _BITS:
            param = name[:100]
            raise Refusal(400, "malformed_body", f"'{param}' is a number of more than {_BITS} bits", param=param)
    for name in _OBJECTS:
        if not isinstance(body.get(name), dict | None):
            raise Refusal(400, "malformed_body", f"'{name}' must be an object", param=name)
    for name in _CONVERSATIONS:
        value = body.get(name)
        if isinstance(value, list) and max(map(_length, [value, *value])) > MAX_MESSAGES:
            raise Refusal(
                400,
                "complex_body",
                f"'{name}' has more than {MAX_MESSAGES} members; send a shorter conversation",
                param=name,
            )


def _length(value: object) -> int:
    if isinstance(value, dict):
        value = value.get("content")
    return len(value) if isinstance(value, list) else 0


def check_text(body: Mapping[str, Any], size: int, limit: int) -> None:
    """Check that a body that may contain images is not too large without them.

    Args:
        body: parsed.
        size: the bytes of the body as received.
        limit: bytes of everything but images.

    Raises:
        Refusal: it is too large.
    """
    if size > limit and size - _media_bytes(body.get("messages")) - _media_bytes(body.get("input")) > limit:
        raise Refusal(
            413, "large_body", f"The request's body has more than {limit} bytes besides images; send a smaller one"
        )


def _media_bytes(messages: object) -> int:
    """Returns the bytes of images in messages.

    Only parts that vLLM reads as images count: those in a tool's arguments, for instance, become part of the prompt.
    """
    size = 0
    left = [messages] if isinstance(messages, list) else []
    while left:
        for message in left.pop():
            if isinstance(message, list):  # a batch of conversations
                left.append(message)
            elif isinstance(message, dict) and message.get("type") in _MEDIA:
                size += _text_bytes(message)
            elif isinstance(message, dict) and isinstance(content := message.get("content"), list):
                left.append(content)
    return size


def _text_bytes(value: object) -> int:
    """Returns the characters of all texts in a parsed value."""
    size = 0
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
    return size
