"""Counts the engine requests of one body: one for each prompt in it and each answer to the prompt.

The engine's requests of one body begin at once, and vLLM's event loop does nothing else meanwhile: without a bound, one
body of a few kilobytes could block all clients.
"""

from collections.abc import Mapping
from typing import Any, Final

from tenantzone_runtime.frontend.responses.answers import Refusal

_PROMPTS: Final = ("prompt", "prompt_embeds")
"""Fields with prompts; vLLM answers the prompts of both fields if a body has both."""
_CONVERSATIONS: Final = "messages"
_TEXTS_OR_MESSAGES: Final = "input"
"""Texts to be embedded, conversations, or the messages of a single one."""
_CHOICES: Final = ("n", "best_of")


def check_prompts(body: Mapping[str, Any], limit: int) -> int:
    """Check that a body makes at most ``limit`` requests of the engine, and return their number.

    Args:
        body: parsed.
        limit: maximum number of prompts, each times the number of its answers.

    Raises:
        Refusal: it makes more; the message names the list, or the field that requests several answers to one prompt.
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
    """Returns the field with the most prompts of a body, and their number."""
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
    # One prompt may be a list of token ids. vLLM refuses any other list, but first spends time on each member.
    return 1 if {int}.issuperset(map(type, value)) else len(value)


def _count(value: object) -> int:
    """Returns a number as vLLM may read it, including texts and fractions; values that it refuses count as 1."""
    if isinstance(value, str | float):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return 1
    return max(1, value) if isinstance(value, int) else 1
