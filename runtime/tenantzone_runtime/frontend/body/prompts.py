"""Limits the number of engine requests that vLLM makes from one body: one for each answer to each prompt.

vLLM starts all engine requests of a body at once, and its event loop serves no other client meanwhile. Without a limit,
one body of a few kilobytes could block all clients.
"""

from collections.abc import Mapping
from typing import Any, Final

from tenantzone_runtime.frontend.responses.answers import Refusal

_PROMPTS: Final = ("prompt", "prompt_embeds")
"""Fields with prompts. If a body has both fields, vLLM answers the prompts of both."""
_CONVERSATIONS: Final = "messages"
_TEXTS_OR_MESSAGES: Final = "input"
"""Field with texts to be embedded, a list of conversations, or the messages of one conversation."""
_CHOICES: Final = ("n", "best_of")


def check_prompts(body: Mapping[str, Any], limit: int) -> int:
    """Check that vLLM makes at most ``limit`` engine requests from a body, and return their number.

    Args:
        body: the parsed body.
        limit: maximum number of prompts times the number of answers to each prompt.

    Raises:
        Refusal: the body leads to more engine requests. The refusal names the field with the prompts, or the field that
            requests several answers to one prompt.
    """
    field, prompts = prompts_in(body)
    choice, choices = max(((name, _count(body.get(name))) for name in _CHOICES), key=lambda it: it[1])
    if prompts * choices > limit:
        raise Refusal(
            400,
            "many_prompts",
            f"The request asks for {prompts * choices} answers, more than the limit of {limit}; send several "
            "requests with fewer prompts or choices each",
            param=field if prompts > 1 else choice,
        )
    return prompts * choices


def prompts_in(body: Mapping[str, Any]) -> tuple[str, int]:
    """Returns the name of the body's field with the most prompts, and the number of the body's prompts."""
    counts = {name: _members(body, name) for name in (*_PROMPTS, _CONVERSATIONS, _TEXTS_OR_MESSAGES)}
    together = sum(counts[name] for name in _PROMPTS if body.get(name) is not None)
    return max(counts, key=counts.__getitem__), max(together, *counts.values())


def _members(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, list):
        return 1
    if name == _CONVERSATIONS:
        return sum(isinstance(member, list) for member in value) or 1
    if name == _TEXTS_OR_MESSAGES:
        return sum(isinstance(member, str | list) for member in value) or 1
    # A list of only token ids is one prompt. Otherwise count each member, because vLLM spends time on each, even if it
    # then refuses the list.
    return 1 if {int}.issuperset(map(type, value)) else len(value)


def _count(value: object) -> int:
    """Returns a value as the whole number that vLLM may read from it. A value that vLLM refuses counts as 1."""
    if isinstance(value, str | float):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return 1
    return max(1, value) if isinstance(value, int) else 1
