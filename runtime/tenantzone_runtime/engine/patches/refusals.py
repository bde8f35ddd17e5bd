"""Reports the scheduler's refusals to clients with the right status instead of status 500.

The scheduler can only end a request with an error, which vLLM's API server answers with 500. So the scheduler writes
the refusal into the request's stop reason, which is otherwise unset after an error. The API server passes the refusal
to the frontend, which answers the client. The output of a pooling model has no stop reason, so it contains the
refusal's bytes instead of the requested numbers.

Upstream change that would make this module unnecessary: an error with an HTTP status in ``EngineCoreOutput``, which the
API server returns to the client.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any, Final, NamedTuple

import torch
from vllm.exceptions import VLLMValidationError
from vllm.outputs import PoolingRequestOutput, RequestOutput
from vllm.v1.engine import EngineCoreOutputs, FinishReason

from tenantzone_runtime.engine.errors import BindingError
from tenantzone_runtime.engine.patches.grammar_validation import GrammarValidation, validate_beside_the_loop
from tenantzone_runtime.engine.patches.logprob_bounds import bound_prompt_logprobs, with_bounded_logprobs
from tenantzone_runtime.engine.patches.parsers.parsed_outputs import ParsedOutputs
from tenantzone_runtime.engine.patches.request_seals import with_borne_seal
from tenantzone_runtime.engine.patches.stream_pieces import StreamPieces
from tenantzone_runtime.frontend.responses.engine_refusal import accept, arrive, refuse
from tenantzone_runtime.zones.audit.events import RefusalReason

_MARK: Final = "tenantzone refuses "
_STATUSES: Final[Mapping[RefusalReason, int]] = {
    # Either zones were just declared and the frontend has not noticed, or the request bypassed the frontend.
    "unbound": 503,
    "unknown_tenant": 403,
    "too_long": 400,
    "unsupported": 400,
    "changed_adapter": 503,
    "queue_full": 429,
}


_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+(?=>)")
"""Pattern for the memory address in an object's repr. Clients must not see memory addresses."""


class EngineRefusal(NamedTuple):
    """The scheduler's refusal of a request."""

    status: int
    """HTTP status of the answer."""
    message: str
    retry_after: int | None
    """Seconds after which the client should retry, or None if the engine does not know when a retry may succeed."""
    closed_seconds: float
    """Seconds for which other requests of the tenant would be refused as well."""


def mark(outputs: Iterable[EngineCoreOutputs], refused: Mapping[str, BindingError], *, pooling: bool = False) -> None:
    """Write the refusals into the outputs of refused requests.

    Args:
        outputs: the outputs of a step.
        refused: the refusals by request id.
        pooling: whether the model is a pooling model. Its outputs must contain numbers, even after an error.
    """
    for of_client in outputs:
        for output in of_client.outputs:
            error = refused.get(output.request_id)
            if error is not None:
                seconds = f"{error.retry_after or 0} {error.closed_seconds:.3f}"
                output.stop_reason = f"{_MARK}{_STATUSES[error.reason]} {seconds} {error}"
            if pooling and output.finish_reason == FinishReason.ERROR:
                text = output.stop_reason or "the engine could not serve the request"
                output.pooling_output = torch.tensor(list(str(text).encode()), dtype=torch.uint8)


def refusal_in(output: RequestOutput | PoolingRequestOutput) -> EngineRefusal | None:
    """Returns the refusal that ``mark`` wrote into an output, or None if the output has none."""
    texts = [_text_in(output)] if isinstance(output, PoolingRequestOutput) else _reasons_in(output)
    for text in texts:
        if text.startswith(_MARK):
            status, seconds, closed, message = text.removeprefix(_MARK).split(" ", 3)
            return EngineRefusal(int(status), message, int(seconds) or None, float(closed))
    return None


def _reasons_in(output: RequestOutput) -> list[str]:
    return [
        completion.stop_reason
        for completion in output.outputs
        if completion.finish_reason == "error" and isinstance(completion.stop_reason, str)
    ]


def _text_in(output: PoolingRequestOutput) -> str:
    """Returns the text that ``mark`` wrote in place of an output's numbers, or "" if the numbers are the model's."""
    data = output.outputs.data
    return bytes(data.tolist()).decode(errors="replace") if data.dtype == torch.uint8 else ""


@asynccontextmanager
async def _refusing_mistakes() -> AsyncIterator[None]:
    """Make the frontend answer with 400 if vLLM rejects a request's parameters within the ``with`` block.

    Otherwise, some streaming routes, which have already begun to answer, would end the stream without an error.
    """
    try:
        yield
    except (ValueError, VLLMValidationError) as error:
        # Only vLLM's exceptions have the name of the parameter.
        await refuse(400, _ADDRESS.sub("", str(error)), param=getattr(error, "parameter", None))
        raise


_Generate = Callable[..., AsyncGenerator[RequestOutput, None]]
_Encode = Callable[..., AsyncGenerator[PoolingRequestOutput, None]]


def pass_refusals_on() -> None:
    """Make vLLM's API server pass arrivals and refusals to the frontend, and validate grammars by tenant."""
    # Imported here, because only the API server needs it.
    from vllm.v1.engine.async_llm import AsyncLLM

    if hasattr(AsyncLLM.generate, "passes_refusals_on"):
        return
    passing_on = partial(_passing_refusals_on, validation=validate_beside_the_loop())
    if hasattr(AsyncLLM.generate, "intercept"):
        AsyncLLM.generate.intercept(passing_on)
        AsyncLLM.encode.intercept(_passing_refusals_of_pooling_on)
    else:
        AsyncLLM.generate = passing_on(AsyncLLM.generate)
        AsyncLLM.encode = _passing_refusals_of_pooling_on(AsyncLLM.encode)
    AsyncLLM.generate.passes_refusals_on = True


def _passing_refusals_on(generate: _Generate, validation: GrammarValidation) -> _Generate:
    @wraps(generate)
    async def generate_or_refuse(
        engine: Any, prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        arrive()
        vocabulary = engine.model_config.get_vocab_size()
        await bound_prompt_logprobs(prompt, sampling_params, vocabulary)
        sampling_params = with_bounded_logprobs(sampling_params, vocabulary)
        known = engine.input_processor
        pieces = StreamPieces(sampling_params, vocabulary, known.tokenizer)
        parsed = ParsedOutputs(sampling_params)
        async with _refusing_mistakes():
            await validation.before(
                sampling_params, engine.model_config, known.structured_outputs_config, known.tokenizer
            )
        outputs = generate(engine, prompt, with_borne_seal(sampling_params), *args, **kwargs)
        try:
            async with _refusing_mistakes():
                output = await anext(outputs, None)
            while output is not None:
                if (refusal := refusal_in(output)) is not None:
                    await refuse(*refusal)
                await accept()
                part = parsed.add(output)
                if part is not None:
                    async for piece in pieces.of(part):
                        yield piece
                output = await anext(outputs, None)
        finally:
            # Close the generator now, which aborts the request in the engine. Garbage collection would close it later.
            await outputs.aclose()

    return generate_or_refuse


def _passing_refusals_of_pooling_on(encode: _Encode) -> _Encode:
    @wraps(encode)
    async def encode_or_refuse(
        engine: Any, prompt: Any, pooling_params: Any, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        arrive()
        outputs = encode(engine, prompt, with_borne_seal(pooling_params), *args, **kwargs)
        try:
            async for output in outputs:
                if (refusal := refusal_in(output)) is not None:
                    await refuse(*refusal)
                if text := _text_in(output):
                    raise RuntimeError(text)
                yield output
        finally:
            await outputs.aclose()

    return encode_or_refuse
