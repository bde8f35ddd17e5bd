"""Divides large pieces of streams, so that vLLM's API server never formats many log probabilities without a pause.

vLLM formats the log probabilities of a piece on its event loop, while all other requests wait. Most pieces contain the
tokens of one step. A piece contains more tokens if the request or a flag sets a stream interval, or if the client reads
more slowly than the engine generates, because vLLM then joins waiting pieces.

Upstream change that would make this module unnecessary: an upper bound on the tokens in one piece of a stream.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final

from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from tenantzone_runtime.engine.patches.logprob_bounds import logprobs_of_token
from tenantzone_runtime.frontend.request_context import current_context

MAX_LOGPROBS_OF_PIECE: Final = 1024
"""Maximum number of log probabilities in a piece. A piece with only one token may have more."""
_AT_THE_END: Final = ("finish_reason", "stop_reason", "routed_experts", "spec_decode_metrics", "weight_versions")
"""Attributes of a completion that only its last piece has. Some do not exist in older versions of vLLM."""
_CONTEXT: Final = 6
"""Number of previous tokens that can affect the text of a token, for example by a space or a split character."""


class StreamPieces:
    """Divides the outputs of one request.

    Args:
        params: the request's parameters.
        vocabulary: the number of tokens in the model's vocabulary.
        tokenizer: the engine's tokenizer, or None if the engine produces no text.
    """

    def __init__(self, params: SamplingParams, vocabulary: int, tokenizer: Any) -> None:
        self._most = tokens_of_piece(params, vocabulary)
        stops = params.stop if isinstance(params.stop, list) and not params.include_stop_str_in_output else []
        self._withheld = max(map(len, stops), default=1) - 1
        """Number of characters at the end of an answer that vLLM withholds, because they may begin a stop string."""
        self._params = params
        self._tokenizer = tokenizer if params.detokenize else None
        self._before: dict[int, _Before] = {}
        """State of each answer of the request before its next output, by the answer's index."""

    async def of(self, output: RequestOutput) -> AsyncIterator[RequestOutput]:
        """Divide one output. Other tasks of the event loop can run after each piece except the last.

        Args:
            output: the engine's output.
        """
        most = self._most
        if most is None:
            yield output
            return
        if sum(len(each.token_ids) for each in output.outputs) <= most:
            self._note(output)
            yield output
            return
        parts = [part for each in output.outputs for part in self._parts_of(each, most, output.prompt_token_ids)]
        self._note(output)
        for number, part in enumerate(parts, start=1):
            is_last = number == len(parts)
            piece = copy(output)
            piece.outputs = [part]
            piece.finished = output.finished and is_last
            yield piece
            if not is_last:
                await asyncio.sleep(0)

    def _note(self, output: RequestOutput) -> None:
        for completion in output.outputs:
            before = self._before.setdefault(completion.index, _Before())
            before.has_text = before.has_text or bool(completion.text)
            # Before the first text is output, keep all withheld tokens, because `_parts_of` needs the length of their
            # text.
            kept = _CONTEXT if before.has_text else _CONTEXT + self._withheld
            before.ids = [*before.ids, *completion.token_ids][-kept:]

    def _parts_of(
        self, completion: CompletionOutput, most: int, prompt: Sequence[int] | None
    ) -> Iterator[CompletionOutput]:
        """Divide the text, tokens and log probabilities of a completion into several completions, in order."""
        before = self._before.get(completion.index, _Before())
        ids = completion.token_ids
        count, text = len(ids), completion.text
        withheld = self._withheld if before.has_text else len(self._text(before.ids))
        context = [*(prompt or ())[-_CONTEXT:], *before.ids][-_CONTEXT:]
        unfinished: dict[str, Any] = {name: None for name in _AT_THE_END if hasattr(completion, name)}
        for begin in range(0, max(1, count), most):
            end = begin + most
            is_last = end >= count
            # A piece must contain the text of its tokens, because parsers look for the text only in the same piece.
            withheld += len(self._text([*context, *ids[begin:end]])) - len(self._text(context))
            length = len(text) if is_last else max(0, min(withheld, len(text)))
            withheld -= length
            context = [*context, *ids[begin:end]][-_CONTEXT:]
            yield replace(
                completion,
                text=text[:length],
                token_ids=ids[begin:end],
                logprobs=None if completion.logprobs is None else completion.logprobs[begin:end],
                **_mask_of(completion, begin, end),
                **({} if is_last else unfinished),
            )
            text = text[length:]

    def _text(self, ids: Sequence[int]) -> str:
        if self._tokenizer is None or not ids:
            return ""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=self._params.skip_special_tokens))


@dataclass(slots=True)
class _Before:
    """The state of one answer after earlier outputs."""

    has_text: bool = False
    """Whether any text of the answer has been output."""
    ids: list[int] = field(default_factory=list)
    """Last tokens of the answer. Until its first text is output, they include all tokens whose text is withheld."""


def tokens_of_piece(params: SamplingParams, vocabulary: int) -> int | None:
    """Returns the maximum number of tokens of a piece of a request's stream.

    Args:
        params: the request's parameters, which set the number of log probabilities.
        vocabulary: the number of tokens in the model's vocabulary.

    Returns:
        The maximum. None for no limit, if the request is not streamed, has no log probabilities, or did not come
        through the frontend.
    """
    each = logprobs_of_token(params, vocabulary)
    if current_context() is None or params.output_kind is not RequestOutputKind.DELTA or each is None:
        return None
    return max(1, MAX_LOGPROBS_OF_PIECE // each)


def _mask_of(completion: CompletionOutput, begin: int, end: int) -> dict[str, Any]:
    """Returns the part of the completion's ``sampling_mask`` for these tokens, or nothing if it has no such mask."""
    mask = getattr(completion, "sampling_mask", None)
    return {} if mask is None else {"sampling_mask": replace(mask, token_ids=mask.token_ids[begin:end])}
