"""Bounds what a request has the engine do for each token: steps that are a tenant's own are still everybody's time.

vLLM looks at these fields in the engine core's step or in the worker's, between the tokens of all requests. Its newer
model runner has room for so many tokens of a list, and ends the engine where a request names more.
"""

from collections.abc import Mapping
from math import isnan
from typing import Any, Final

from tenantzone_runtime.door.answers import Refusal

LONGEST: Final = {"logit_bias": 1024, "allowed_token_ids": 1024, "stop_token_ids": 64}
"""Members of each. Of the tokens that end an answer the model's own are among the 128 that there is room for."""
MAX_CHARACTERS: Final = {"stop": 4096, "stop_sequences": 4096, "bad_words": 16_384}
"""Characters of each, and one more for each text in it. vLLM searches an answer for the former after each token, on its
event loop; it makes tokens of the latter there, and looks for them in each step."""
MAX_LOGPROBS: Final = 2**17
"""Of an answer in one piece: vLLM makes an object of each on its event loop."""
MAX_PROMPT_LOGPROBS: Final = 2**15
"""Of all prompts of a body: fewer, for vLLM does so at once for these, and not token by token."""
_UNSAID_TOKENS: Final = 4096
"""Of an answer whose length nobody has said: how long it may get the door does not know."""
_ANSWER_TOKENS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_LOGPROBS: Final = ("logprobs", "top_logprobs")
_LOGPROB_TOKENS: Final = "logprob_token_ids"
_STREAMED: Final = frozenset({"/v1/completions", "/v1/chat/completions", "/v1/messages"})
"""Routes whose streams have each token in one piece only. `/v1/responses` ends a stream with the whole answer in one
piece, and no other route streams, whatever the field ``stream`` says."""
_BEAM_SEARCH: Final = "use_beam_search"
"""With it a chat's stream has the whole answer in one piece."""
_PROMPT_LOGPROBS: Final = "prompt_logprobs"
_ECHO: Final = "echo"
_REPETITION: Final = "repetition_detection"
_MOST_COMPARED: Final = 2**14
"""Tokens at most, to be compared after each token."""


def check_sampling(body: Mapping[str, Any]) -> None:
    """Check that a request asks for no more work with each token than it may.

    Args:
        body: parsed.

    Raises:
        Refusal: a field that asks for more, named.
    """
    for field, longest in LONGEST.items():
        value = body.get(field)
        if isinstance(value, dict | list) and len(value) > longest:
            raise _refused(field, f"has more than {longest} members")
    for field, most in MAX_CHARACTERS.items():
        value = body.get(field)
        texts = value if isinstance(value, list) else [value]
        if sum(len(text) + 1 for text in texts if isinstance(text, str)) > most:
            raise _refused(field, f"has more than {most} characters, counting one more for each text in it")
    repetition = body.get(_REPETITION)
    if isinstance(repetition, dict) and _compared(repetition) > _MOST_COMPARED:
        raise _refused(
            _REPETITION, f"looks too far back: max_pattern_size ** 2 * min_count may be {_MOST_COMPARED} at most"
        )


def check_logprobs(body: Mapping[str, Any], answers: int, path: str) -> None:
    """Check that an answer in one piece, or a stream's piece, has not too many log probabilities in it.

    Args:
        body: parsed.
        answers: how many the body comes to.
        path: of its route.

    Raises:
        Refusal: it has.
    """
    wanted_by = {name: _logprobs(body.get(name)) for name in _LOGPROBS}
    wanted_by[_LOGPROB_TOKENS] = _members(body.get(_LOGPROB_TOKENS))
    field, wanted = max(wanted_by.items(), key=lambda it: it[1])
    if wanted < 1:
        return
    said = [_number(body[name]) for name in _ANSWER_TOKENS if body.get(name) is not None]
    # Pieces of a stream are kept small where they are made.
    tokens = 1 if is_in_pieces(body, path) else max(said, default=_UNSAID_TOKENS)
    if answers * (wanted + 1) * tokens > MAX_LOGPROBS:
        raise _refused(
            field,
            f"makes an answer of more than {MAX_LOGPROBS} log probabilities, counting {answers} answers of "
            f"{tokens:g} tokens; stream it, say a smaller max_tokens",
        )


def is_in_pieces(body: Mapping[str, Any], path: str) -> bool:
    """Whether a body's answer is streamed, and no piece of it has more than a few tokens.

    The engine divides pieces that have more, such as those of a stream with an interval.
    """
    return body.get("stream") is True and path in _STREAMED and body.get(_BEAM_SEARCH) in (None, False)


def tokens_with_logprobs(answers: int, each: int) -> int:
    """How many tokens an answer in one piece may have, however long it is asked to be.

    Args:
        answers: how many the body comes to.
        each: log probabilities that each token has, its own with them.
    """
    return max(1, MAX_LOGPROBS // (answers * each))


def prompt_logprobs_field(body: Mapping[str, Any]) -> str:
    """The field that asks for log probabilities of the prompts, if one does."""
    return _ECHO if body.get(_PROMPT_LOGPROBS) is None else _PROMPT_LOGPROBS


def check_prompt_logprobs(count: int, field: str) -> None:
    """Check that an answer has not too many log probabilities of its prompts in it, streamed or not.

    Args:
        count: of all prompts of the body that have become tokens, each as often as it is answered.
        field: what asks for them.

    Raises:
        Refusal: it has.
    """
    if count > MAX_PROMPT_LOGPROBS:
        raise _refused(
            field,
            f"makes an answer of more than {MAX_PROMPT_LOGPROBS} log probabilities of prompts: for each token of each "
            "prompt it has one more than are asked for; send fewer or shorter prompts",
        )


def _compared(repetition: Mapping[str, Any]) -> float:
    """How many tokens vLLM compares at most: each length of a pattern is tried, and may differ in its last token."""
    size, count = (_number(repetition.get(name)) for name in ("max_pattern_size", "min_count"))
    return size * size * max(count, 2.0) if size > 0 else 0.0


def _logprobs(value: object) -> float:
    number = _number(value)
    # -1 stands for the whole vocabulary.
    return float("inf") if number < 0 else number


def _members(value: object) -> float:
    return len(value) if isinstance(value, list) else 0.0


def _number(value: object) -> float:
    """As vLLM may read it, which takes texts for numbers, too; what can't be told is too large."""
    if value is None:
        return 0.0
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return float("inf")
    return float("inf") if isnan(number) else number


def _refused(field: str, problem: str) -> Refusal:
    return Refusal(400, "complex_body", f"'{field}' {problem}; ask for less", param=field)
