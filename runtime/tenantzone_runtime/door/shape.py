"""Bounds the shape of a request's body: how many values it has, how deep they nest, how much of it is no image.

What is cheap to send can be dear to read: a megabyte of brackets makes half a million objects, and each of them is
looked at several times before the engine hears of the request.
"""

from collections.abc import Mapping
from typing import Any

from tenantzone_runtime.door.answers import Refusal
from tenantzone_runtime.door.values import MAX_DEPTH, TooDeep, levels, nests_deeper, read_text, refuse_depth, texts_in

MAX_VALUES = 2**18
"""Of objects, lists and their members. A prompt of token ids has one for each."""
MAX_MESSAGES = 4096
"""Of one conversation, or parts of one message; vLLM looks at each several times, on its event loop."""

_MEDIA = frozenset({"image_url", "input_image", "image", "audio_url", "input_audio", "video_url"})
"""The types of the parts of a message that bring an image, a sound or a video along."""
_OBJECTS = ("structured_outputs", "response_format", "stream_options")
_CONVERSATIONS = ("messages", "input", "previous_input_messages", "system")
_ARGUMENTS = "arguments"
_BITS = 64
"""Of a whole number, as vLLM's processes can tell each other."""


def check_count(body: bytes) -> None:
    """Check, before it is parsed, that a body in JSON has few enough values.

    Counted are the characters that begin or part values, those within texts with them.

    Raises:
        Refusal: it has too many.
    """
    if sum(body.count(character) for character in (b",", b"[", b"{")) > MAX_VALUES:
        raise Refusal(400, "complex_body", f"The request's body has more than {MAX_VALUES} values; send fewer")


def check_depth(raw: bytes, body: Mapping[str, Any]) -> None:
    """Check that a body does not nest too deep, and neither do the arguments of tool calls that it has as JSON texts.

    Args:
        raw: the body, as it came.
        body: parsed.

    Raises:
        Refusal: a field does, named.
    """
    # Each level opens with a bracket: a long prompt of token ids needs no walk.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
        for name, value in body.items():
            if nests_deeper(value, MAX_DEPTH - 1):
                raise refuse_depth("complex_body", f"'{name[:100]}'", name[:100])
    for name in _CONVERSATIONS:
        for level in levels(body.get(name)):
            if any(_is_deep(each[_ARGUMENTS]) for each in level if isinstance(each, dict) and _ARGUMENTS in each):
                raise refuse_depth("complex_body", f"The JSON text in an '{_ARGUMENTS}' of '{name}'", name)


def _is_deep(arguments: object) -> bool:
    """Whether the arguments of a tool call are a JSON text that nests too deep: vLLM parses such a text."""
    if not isinstance(arguments, str) or arguments.count("{") + arguments.count("[") <= MAX_DEPTH:
        return False
    try:
        read_text(arguments)
    except TooDeep:
        return True
    return False


def check_texts(raw: bytes, body: Mapping[str, Any]) -> None:
    """Check that all texts are Unicode: JSON can spell half of a surrogate pair, for which there are no bytes.

    Args:
        raw: the body, as it came.
        body: parsed.

    Raises:
        Refusal: a field with such a text, named.
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
    """Check that fields of which vLLM takes for granted what they are, are that, and that conversations end.

    Of numbers it takes for granted that they can be passed on from one of its processes to another.

    Raises:
        Refusal: one that is something else, or longer than any, named.
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
    """Check that a body which may bring images along is not too large without them.

    Args:
        body: parsed.
        size: its bytes, as they came.
        limit: bytes of all that is no image.

    Raises:
        Refusal: it is.
    """
    if size > limit and size - _media_bytes(body.get("messages")) - _media_bytes(body.get("input")) > limit:
        raise Refusal(
            413, "large_body", f"The request's body has more than {limit} bytes besides images; send a smaller one"
        )


def _media_bytes(messages: object) -> int:
    """The bytes of images in messages.

    Only where vLLM reads one: what stands in a tool's arguments, for instance, becomes a part of the prompt.
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
    """The characters of all texts in a parsed value."""
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
