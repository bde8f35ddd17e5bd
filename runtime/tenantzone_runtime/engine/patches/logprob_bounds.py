"""Bounds the number of log probabilities in an answer, because vLLM creates an object for each on its event loop.

This is done in vLLM's API server, because the frontend does not know the number of tokens of a text or an image, or the
length of an answer if the request sets no limit. An answer contains the log probabilities of all prompts of a request
body, once per choice.

Upstream change that would make this module unnecessary: a plugin that may change or refuse the parameters of a request
before ``AsyncLLM.generate``.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any

from vllm.sampling_params import SamplingParams

from tenantzone_runtime.frontend.body.sampling import check_prompt_logprobs, tokens_with_logprobs
from tenantzone_runtime.frontend.request_context import current_context
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.responses.engine_refusal import refuse_with


async def bound_prompt_logprobs(prompt: Any, params: SamplingParams, vocabulary: int) -> None:
    """Make the frontend refuse the current request if its answer would have too many prompt log probabilities.

    Args:
        prompt: one prompt of the request, as vLLM passes it to the engine.
        params: the request's parameters.
        vocabulary: the number of tokens in the model's vocabulary.
    """
    context = current_context()
    if context is None or params.prompt_logprobs is None:
        return
    context.prompt_logprobs += _each(params.prompt_logprobs, vocabulary) * _tokens(prompt) * max(1, params.n)
    try:
        check_prompt_logprobs(context.prompt_logprobs, context.prompt_logprobs_field)
    except Refusal as refusal:
        await refuse_with(refusal)


def with_bounded_logprobs(params: SamplingParams, vocabulary: int) -> SamplingParams:
    """Returns the parameters, with a lower ``max_tokens`` if an answer in one piece could have too many logprobs.

    If the request itself sets ``max_tokens``, the frontend has already checked the value.
    """
    context = current_context()
    each = logprobs_of_token(params, vocabulary)
    if context is None or not context.answers_in_one_piece or each is None:
        return params
    longest = tokens_with_logprobs(context.answers_in_one_piece, each)
    if params.max_tokens is not None and params.max_tokens <= longest:
        return params
    params = copy(params)
    params.max_tokens = longest
    return params


def logprobs_of_token(params: SamplingParams, vocabulary: int) -> int | None:
    """Returns the number of log probabilities per token of an answer, or None if the request asks for none.

    The number includes the log probability of the token itself.

    Args:
        params: the request's parameters.
        vocabulary: the number of tokens in the model's vocabulary.
    """
    wanted = len(params.logprob_token_ids or ()) or None if params.logprobs is None else params.logprobs
    return None if wanted is None else _each(wanted, vocabulary)


def _each(wanted: int, vocabulary: int) -> int:
    """Returns the number of log probabilities per token, including the token itself. ``wanted`` < 0 asks for all."""
    return vocabulary if wanted < 0 else wanted + 1


def _tokens(prompt: Any) -> int:
    if not isinstance(prompt, Mapping):
        return 0
    if "decoder_prompt" in prompt:
        return _tokens(prompt["decoder_prompt"])
    known = (prompt.get(name) for name in ("prompt_token_ids", "prompt_embeds"))
    return max((len(each) for each in known if each is not None), default=0)
