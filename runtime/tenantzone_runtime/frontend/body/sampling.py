"""Limits the engine's work per token of a request, because the work for one tenant delays the steps of all tenants.

vLLM processes the limited fields during each step, in the engine core or in the worker. In addition, its newer model
runner has room for a fixed number of tokens in a list, and the engine stops if a request has more.
"""

from collections.abc import Mapping
from math import isnan
from typing import Any, Final

from tenantzone_runtime.frontend.responses.answers import Refusal

LONGEST: Final = {"logit_bias": 1024, "allowed_token_ids": 1024, "stop_token_ids": 64}
"""Maximum number of members of each field. vLLM has room for 128 stop tokens per request, including the model's own."""
MAX_CHARACTERS: Final = {"stop": 4096, "stop_sequences": 4096, "bad_words": 16_384}
"""Maximum number of characters of each field. Each text counts as its length plus 1. On its event loop, vLLM searches
for stop strings after each token, and tokenizes bad words. vLLM also checks for bad words in each step."""
MAX_LOGPROBS: Final = 2**17
"""Maximum number of log probabilities of an answer that is sent in one piece. vLLM creates an object for each of them
on its event loop."""
MAX_PROMPT_LOGPROBS: Final = 2**15
"""Maximum number of log probabilities of all prompts of a body. It is lower than `MAX_LOGPROBS`, because vLLM creates
them all at once."""
_UNSAID_TOKENS: Final = 4096
"""Assumed length of an answer in tokens, if the request does not limit the length."""
_ANSWER_TOKENS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_LOGPROBS: Final = ("logprobs", "top_logprobs")
_LOGPROB_TOKENS: Final = "logprob_token_ids"
_STREAMED: Final = frozenset({"/v1/completions", "/v1/chat/completions", "/v1/messages"})
"""Routes whose streams send each token only once. `/v1/responses` also sends the whole answer at the end of a stream.
Other routes never stream, even if the field ``stream`` is true."""
_BEAM_SEARCH: Final = "use_beam_search"
"""If this field is set, a chat's stream has the whole answer in one piece."""
_PROMPT_LOGPROBS: Final = "prompt_logprobs"
_ECHO: Final = "echo"
_REPETITION: Final = "repetition_detection"
_MOST_COMPARED: Final = 2**14
"""Maximum number of tokens that vLLM may compare after each generated token to detect repetitions."""


def check_sampling(body: Mapping[str, Any]) -> None:
    """Check that a request does not need too much work per token.

    Args:
        body: the parsed body.

    Raises:
        Refusal: a field exceeds its limit. The message names the field.
    """
    for field, longest in LONGEST.items():
        value = body.get(field)
        if isinstance(value, dict | list) and len(value) > longest:
            raise _refused(field, f"has more than {longest} members")
    for field, most in MAX_CHARACTERS.items():
        value = body.get(field)
        texts = value if isinstance(value, list) else [value]
        if sum(len(text) + 1 for text in texts if isinstance(text, str)) > most:
            raise _refused(field, f"has more than {most} characters in total; each text counts as its length plus 1")
    repetition = body.get(_REPETITION)
    if isinstance(repetition, dict) and _compared(repetition) > _MOST_COMPARED:
        raise _refused(
            _REPETITION, f"looks too far back: max_pattern_size ** 2 * min_count may be at most {_MOST_COMPARED}"
        )


def check_logprobs(body: Mapping[str, Any], answers: int, path: str) -> None:
    """Check that no answer in one piece, and no piece of a stream, would have too many log probabilities.

    Args:
        body: the parsed body.
        answers: the number of answers to the body.
        path: the path of the request's route.

    Raises:
        Refusal: there would be too many log probabilities.
    """
    wanted_by = {name: _logprobs(body.get(name)) for name in _LOGPROBS}
    wanted_by[_LOGPROB_TOKENS] = _members(body.get(_LOGPROB_TOKENS))
    field, wanted = max(wanted_by.items(), key=lambda it: it[1])
    if wanted < 1:
        return
    said = [_number(body[name]) for name in _ANSWER_TOKENS if body.get(name) is not None]
    # Count one token for a stream, because the engine keeps the pieces of a stream small.
    tokens = 1 if is_in_pieces(body, path) else max(said, default=_UNSAID_TOKENS)
    if answers * (wanted + 1) * tokens > MAX_LOGPROBS:
        raise _refused(
            field,
            f"requests more than {MAX_LOGPROBS} log probabilities, counting {answers} answers of {tokens:g} tokens",
            "stream the answer, set a smaller max_tokens, or request less",
        )


def is_in_pieces(body: Mapping[str, Any], path: str) -> bool:
    """Returns whether the answer to a body is streamed in pieces of at most a few tokens.

    A stream with an interval (of several tokens per piece) also counts, because the engine divides its larger pieces.
    """
    return body.get("stream") is True and path in _STREAMED and body.get(_BEAM_SEARCH) in (None, False)


def tokens_with_logprobs(answers: int, each: int) -> int:
    """Returns the maximum number of tokens that an answer in one piece may have, whatever length the body requests.

    Args:
        answers: the number of answers to the body.
        each: number of log probabilities per token, including that of the token itself.
    """
    return max(1, MAX_LOGPROBS // (answers * each))


def prompt_logprobs_field(body: Mapping[str, Any]) -> str:
    """Returns the field that may request log probabilities of the prompts: `prompt_logprobs` if set, or else `echo`."""
    return _ECHO if body.get(_PROMPT_LOGPROBS) is None else _PROMPT_LOGPROBS


def check_prompt_logprobs(count: int, field: str) -> None:
    """Check that the answers to a body do not have too many log probabilities of prompt tokens.

    Args:
        count: number of log probabilities of all prompts of the body. A prompt counts once for each of its answers.
        field: name of the field that requests the log probabilities.

    Raises:
        Refusal: there are too many log probabilities.
    """
    if count > MAX_PROMPT_LOGPROBS:
        raise _refused(
            field,
            f"requests more than {MAX_PROMPT_LOGPROBS} log probabilities of prompt tokens; each prompt token counts "
            "as the field's value plus 1",
            "send fewer or shorter prompts, or request less",
        )


def _compared(repetition: Mapping[str, Any]) -> float:
    """Returns the maximum number of tokens that vLLM compares after each generated token, for all pattern lengths."""
    size, count = (_number(repetition.get(name)) for name in ("max_pattern_size", "min_count"))
    return size * size * max(count, 2.0) if size > 0 else 0.0


def _logprobs(value: object) -> float:
    number = _number(value)
    # -1 requests the log probabilities of the whole vocabulary.
    return float("inf") if number < 0 else number


def _members(value: object) -> float:
    return len(value) if isinstance(value, list) else 0.0


def _number(value: object) -> float:
    """Returns a value as the number that vLLM may read from it. A value that is not a number counts as infinite."""
    if value is None:
        return 0.0
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return float("inf")
    return float("inf") if isnan(number) else number


def _refused(field: str, problem: str, advice: str = "request less") -> Refusal:
    return Refusal(400, "complex_body", f"'{field}' {problem}; {advice}", param=field)
