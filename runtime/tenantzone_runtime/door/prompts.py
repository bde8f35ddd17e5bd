"""Counts what one body comes to in the engine: a request for each prompt in it, as often as it is to be answered.

The engine's requests of one body begin at once, and vLLM's event loop does nothing else meanwhile; whoever may send
lists without end stops everybody with one request of a few kilobytes.
"""

from collections.abc import Mapping
from typing import Any, Final

from tenantzone_runtime.door.answers import Refusal

_PROMPTS: Final = ("prompt", "prompt_embeds")
"""Of one body vLLM answers both."""
_CONVERSATIONS: Final = "messages"
_TEXTS_OR_MESSAGES: Final = "input"
"""Texts to be embedded, conversations, or the messages of a single one."""
_CHOICES: Final = ("n", "best_of")


def check_prompts(body: Mapping[str, Any], limit: int) -> int:
    """Check that a body comes to no more requests of the engine than it may, and return to how many.

    Args:
        body: parsed.
        limit: prompts, each as often as it is to be answered.

    Raises:
        Refusal: it comes to more; named is the list, or what asks for more than one answer to a single prompt.
    """
    field, prompts = prompts_in(body)
    choice, choices = max(((name, _count(body.get(name))) for name in _CHOICES), key=lambda it: it[1])
    if prompts * choices > limit:
        raise Refusal(
            400,
            "many_prompts",
            f"The request asks for {prompts * choices} answers, more than {limit}; send several with fewer prompts or "
            "choices each",
            param=field if prompts > 1 else choice,
        )
    return prompts * choices


def prompts_in(body: Mapping[str, Any]) -> tuple[str, int]:
    """The field that has most of a body's prompts, and how many there are."""
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
    # One prompt may be a list itself, of token ids. What is neither vLLM refuses, at a cost for each member.
    return 1 if {int}.issuperset(map(type, value)) else len(value)


def _count(value: object) -> int:
    """As vLLM may read it, which takes texts and fractions for whole numbers, too; what it does not take is one."""
    if isinstance(value, str | float):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return 1
    return max(1, value) if isinstance(value, int) else 1
