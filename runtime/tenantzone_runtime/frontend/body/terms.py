"""Checks a request against its zone's limits for the length, number and detail of answers, and for the priority.

vLLM also converts texts and fractions to whole numbers. This module accepts only whole numbers in limited fields, so
that the frontend and vLLM never read different values.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import RequestPriority
from tenantzone_runtime.frontend.body.forms import check_without_patterns
from tenantzone_runtime.frontend.body.prompts import prompts_in
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.responses.refusals import Reason

PRIORITY_HEADER: Final = "x-vllm-priority"
"""Name of the header that overrides the body's ``priority`` in vLLM."""

_ANSWER_TOKENS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens")
_BEAM_SEARCH: Final = "use_beam_search"
_CHOICES: Final = ("n", "best_of")
_LOGPROBS: Final = ("logprobs", "top_logprobs", "prompt_logprobs")
_LOGPROB_TOKENS: Final = "logprob_token_ids"
_WITH_COUNTED_LOGPROBS: Final = "/v1/completions"
"""The only route where ``logprobs`` is a number. On other routes, ``logprobs`` is a boolean."""


def check_terms(
    body: Mapping[str, Any], headers: Sequence[tuple[bytes, bytes]], path: str, zone: ZoneConfig | None
) -> None:
    """Check that a request is within its zone's limits.

    If a request sets no maximum length, the scheduler limits its answer. With beam search, the scheduler can't do this,
    because each token is a separate engine request. So a request with beam search must set a maximum length.

    Args:
        body: the parsed body.
        headers: the request's headers.
        path: the path of the request's route.
        zone: the tenant's zone; None means that there are no limits.

    Raises:
        Refusal: a field or header exceeds its limit. The message names the field or header.
    """
    urgent = _priorities_in(headers)
    if any(value.bit_length() >= 64 for value in urgent):
        raise Refusal(
            400,
            "request_priority",
            f"'{PRIORITY_HEADER}' is a number of more than 64 bits; send a smaller one",
            param=PRIORITY_HEADER,
        )
    if zone is None:
        return
    limits = zone.request_limits
    _check_fields(body, _ANSWER_TOKENS, limits.max_tokens, "maxTokens")
    if limits.max_tokens is not None and body.get(_BEAM_SEARCH):
        _check_that_beams_end(body)
    _check_fields(body, _CHOICES, limits.choices, "choices")
    _check_logprobs(body, path, limits.logprobs)
    _check_prompts(body, limits.prompts)
    if limits.structured_outputs == "Schemas":
        check_without_patterns(body)
    _check_priority(body, urgent, zone.request_priority)


def _check_fields(body: Mapping[str, Any], fields: Sequence[str], bound: int | None, name: str) -> None:
    if bound is None:
        return
    for field in fields:
        value = body.get(field)
        if value is not None and _whole(field, value, "request_limits") > bound:
            raise _beyond(field, name, bound)


def _check_that_beams_end(body: Mapping[str, Any]) -> None:
    if not any(body.get(field) for field in _ANSWER_TOKENS):
        message = "With beam search, this tenant's requests must set 'max_tokens' (requestLimits.maxTokens)"
        raise Refusal(400, "request_limits", message, param="max_tokens")


def _check_logprobs(body: Mapping[str, Any], path: str, bound: int | None) -> None:
    if bound is None:
        return
    for field in _LOGPROBS:
        value = body.get(field)
        if value is None or (field == "logprobs" and isinstance(value, bool) and path != _WITH_COUNTED_LOGPROBS):
            continue
        # -1 requests the log probabilities of the whole vocabulary.
        if not 0 <= _whole(field, value, "request_limits") <= bound:
            raise _beyond(field, "logprobs", bound)
    tokens = body.get(_LOGPROB_TOKENS)
    if isinstance(tokens, list) and len(tokens) > bound:
        raise _beyond(_LOGPROB_TOKENS, "logprobs", bound)


def _check_prompts(body: Mapping[str, Any], bound: int | None) -> None:
    if bound is None:
        return
    field, prompts = prompts_in(body)
    if prompts > bound:
        raise _beyond(field, "prompts", bound)


def _priorities_in(headers: Sequence[tuple[bytes, bytes]]) -> list[int]:
    """Returns the values of all priority headers that vLLM accepts as numbers."""
    found = []
    for name, text in headers:
        if name.lower() == PRIORITY_HEADER.encode():
            with suppress(ValueError):  # vLLM ignores a header that is not a number
                # Decode Latin-1 like vLLM, because int() then ignores blanks that ASCII does not have.
                found.append(int(text.decode("latin-1")))
    return found


def _check_priority(body: Mapping[str, Any], urgent: Sequence[int], bounds: RequestPriority) -> None:
    if bounds == RequestPriority():
        return
    if (value := body.get("priority")) is not None:
        _check_range("priority", _whole("priority", value, "request_priority"), bounds)
    for value in urgent:
        _check_range(PRIORITY_HEADER, value, bounds)


def _check_range(name: str, value: int, bounds: RequestPriority) -> None:
    lowest, highest = bounds.min, bounds.max
    if (lowest is not None and value < lowest) or (highest is not None and value > highest):
        if lowest is None:
            allowed = f"at most {highest}"
        else:
            allowed = f"at least {lowest}" if highest is None else f"from {lowest} to {highest}"
        message = f"'{name}' is {value}; this tenant's requests may use a priority {allowed} (requestPriority)"
        raise Refusal(400, "request_priority", message, param=name)


def _whole(field: str, value: object, reason: Reason) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Refusal(400, reason, f"'{field}' must be a whole number", param=field)


def _beyond(field: str, name: str, bound: int) -> Refusal:
    message = f"'{field}' exceeds {bound}, the limit for this tenant's requests (requestLimits.{name}); request less"
    return Refusal(400, "request_limits", message, param=field)
