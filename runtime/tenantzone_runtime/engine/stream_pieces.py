"""Divides large pieces of streams, so that vLLM's API server never formats many log probabilities without a pause.

Most pieces have the tokens of one step. A piece has more if the request or a flag sets a stream interval, and if the
client reads more slowly than the engine writes: vLLM then joins the pieces that wait. It formats each log probability
of a piece on its event loop, where all other requests wait meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Final

from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from tenantzone_runtime.door.bearing import borne
from tenantzone_runtime.engine.logprob_bounds import logprobs_of_token

MAX_LOGPROBS_OF_PIECE: Final = 1024
"""Of a piece with more than one token."""
_AT_THE_END: Final = ("finish_reason", "stop_reason", "routed_experts", "spec_decode_metrics", "weight_versions")
"""Attributes of a completion that only the last of its pieces has. Older versions of vLLM lack some of them."""


def tokens_of_piece(params: SamplingParams, vocabulary: int) -> int | None:
    """How many tokens a piece of a request's stream may have.

    Args:
        params: of the request, whose log probabilities count.
        vocabulary: tokens of the model.

    Returns:
        None if its pieces may have any number: it is not streamed, has no log probabilities, or did not come through
        the front door.
    """
    each = logprobs_of_token(params, vocabulary)
    if borne() is None or params.output_kind is not RequestOutputKind.DELTA or each is None:
        return None
    return max(1, MAX_LOGPROBS_OF_PIECE // each)


async def in_pieces(output: RequestOutput, most: int | None) -> AsyncIterator[RequestOutput]:
    """Divide one output of a stream, and let the event loop go on after each piece but the last.

    Args:
        output: as the engine gave it.
        most: tokens of a piece; None: any number.
    """
    if most is None or sum(len(each.token_ids) for each in output.outputs) <= most:
        yield output
        return
    parts = [part for each in output.outputs for part in _parts_of(each, most)]
    for number, part in enumerate(parts, start=1):
        is_last = number == len(parts)
        piece = copy(output)
        piece.outputs = [part]
        piece.finished = output.finished and is_last
        yield piece
        if not is_last:
            await asyncio.sleep(0)


def _parts_of(completion: CompletionOutput, most: int) -> Iterator[CompletionOutput]:
    """A completion of a stream as several, in order, which together have its text, tokens and log probabilities."""
    count = len(completion.token_ids)
    text = completion.text
    unfinished: dict[str, Any] = {name: None for name in _AT_THE_END if hasattr(completion, name)}
    for begin in range(0, max(1, count), most):
        end = begin + most
        is_last = end >= count
        # vLLM counts the place of each token in the text by the lengths of the texts of the pieces before.
        length = len(text) if is_last else _text_length(completion, begin, end)
        yield replace(
            completion,
            text=text[:length],
            token_ids=completion.token_ids[begin:end],
            logprobs=None if completion.logprobs is None else completion.logprobs[begin:end],
            **_mask_of(completion, begin, end),
            **({} if is_last else unfinished),
        )
        text = text[length:]


def _mask_of(completion: CompletionOutput, begin: int, end: int) -> dict[str, Any]:
    """The attribute with the tokens that sampling could have chosen, if the completion has it."""
    mask = getattr(completion, "sampling_mask", None)
    return {} if mask is None else {"sampling_mask": replace(mask, token_ids=mask.token_ids[begin:end])}


def _text_length(completion: CompletionOutput, begin: int, end: int) -> int:
    """The characters of some of a completion's tokens."""
    if completion.logprobs is None:
        return 0
    chosen = ((completion.token_ids[place], completion.logprobs[place]) for place in range(begin, end))
    return sum(len(of_place[token].decoded_token or "") for token, of_place in chosen if token in of_place)
