"""Limits the shape of a request's body: the number of values, their nesting, and the size without media.

A body that is cheap to send can be expensive to process. For example, a megabyte of brackets makes half a million
objects, and each object is processed several times before the engine gets the request.
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
"""Maximum number of objects, lists and their members. Each token id of a prompt is a member."""
MAX_MESSAGES = 4096
"""Maximum number of messages of a conversation, or parts of a message. vLLM's event loop reads each several times."""

_MEDIA = frozenset({"image_url", "input_image", "image", "audio_url", "input_audio", "video_url"})
"""The types of message parts that contain an image, a sound or a video."""
_OBJECTS = ("structured_outputs", "response_format", "stream_options")
_CONVERSATIONS = ("messages", "input", "previous_input_messages", "system")
_ARGUMENTS = "arguments"
_BITS = 64
"""Maximum size in bits, including the sign, of integers that vLLM's processes can exchange."""


def check_count(body: bytes) -> None:
    """Check that a JSON body that is not parsed yet does not have too many values.

    This function counts the characters that begin or separate values. Texts may contain these characters as well, so
    the function may count more values than there are.

    Raises:
        Refusal: the body has too many values.
    """
    if sum(body.count(character) for character in (b",", b"[", b"{")) > MAX_VALUES:
        raise Refusal(400, "complex_body", f"The request's body has more than {MAX_VALUES} values; send fewer")


def check_depth(raw: bytes, body: Mapping[str, Any]) -> None:
    """Check that neither a body nor a tool call's arguments, which are a JSON text, nest too deep.

    Args:
        raw: the body as received.
        body: the parsed body.

    Raises:
        Refusal: a field nests too deep. The message names the field.
    """
    # Each level opens with a bracket. So a body with few brackets, such as a long prompt of token ids, needs no walk.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
        for name, value in body.items():
            if nests_deeper(value, MAX_DEPTH - 1):
                raise refuse_depth("complex_body", f"'{name[:100]}'", name[:100])
    for name in _CONVERSATIONS:
        for level in levels(body.get(name)):
            if any(_is_deep(each[_ARGUMENTS]) for each in level if isinstance(each, dict) and _ARGUMENTS in each):
                raise refuse_depth("complex_body", f"The JSON text in a field '{_ARGUMENTS}' of '{name}'", name)


def _is_deep(arguments: object) -> bool:
    """Returns whether a tool call's arguments are a JSON text that nests too deep. vLLM parses this text."""
    if not isinstance(arguments, str) or arguments.count("{") + arguments.count("[") <= MAX_DEPTH:
        return False
    try:
        read_text(arguments)
    except TooDeep:
        return True
    return False


def check_texts(raw: bytes, body: Mapping[str, Any]) -> None:
    """Check that no text contains half of a surrogate pair. JSON permits halves, but UTF-8 can't encode them.

    Args:
        raw: the body as received.
        body: the parsed body.

    Raises:
        Refusal: a field contains such a text. The message names the field.
    """
    if raw.isascii() and b"\\ud" not in raw and b"\\uD" not in raw:
        return
    for name, value in body.items():
        try:
            # Encode the texts one by one, because one call for all texts would hold the interpreter's lock for long.
            for text in (name, value) if type(value) not in (dict, list) else (name, *texts_in(value)):
                if type(text) is str and not text.isascii():
                    text.encode()
        except UnicodeEncodeError:
            param = name.encode(errors="replace").decode()
            raise Refusal(
                400,
                "malformed_body",
                f"'{param}' contains a text with half of a surrogate pair; send valid Unicode",
                param=param,
            ) from None


def check_kinds(body: Mapping[str, Any]) -> None:
    """Check the types of fields that vLLM does not check, the size of integers, and the length of conversations.

    Integers may have at most the size that vLLM's processes can pass to each other.

    Raises:
        Refusal: a field has the wrong type, or is too large or too long. The message names the field.
    """
    for name, value in body.items():
        if isinstance(value, int) and value.bit_length() >= _BITS:
            param = name[:100]
            raise Refusal(
                400,
                "malformed_body",
                f"'{param}' is a number of more than {_BITS} bits; send a smaller one",
                param=param,
            )
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
    """Check that a body is not too large when its images, sounds and videos are not counted.

    Args:
        body: the parsed body.
        size: size of the body as received, in bytes.
        limit: maximum size of the body without media, in bytes.

    Raises:
        Refusal: the body without media is too large.
    """
    if size > limit and size - _media_bytes(body.get("messages")) - _media_bytes(body.get("input")) > limit:
        raise Refusal(
            413, "large_body", f"The request's body has more than {limit} bytes besides its media; send a smaller one"
        )


def _media_bytes(messages: object) -> int:
    """Returns the number of bytes of images, sounds and videos in messages.

    Counts only parts that vLLM reads as media. vLLM reads other parts as text, for example those in tool arguments.
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
    """Returns the number of characters of all texts in a parsed value."""
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
