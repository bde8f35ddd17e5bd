"""Reports the tokens and the outcome of each prompt in vLLM's API server to the recorder.

Upstream change that would make this module unnecessary: a plugin that gets the prompt and the outputs of each request
in ``AsyncLLM``.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial, wraps
from typing import Any

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind

from tenantzone_runtime.frontend.record import Generation, apart_of, media_of
from tenantzone_runtime.frontend.recorder import Asker, current_asker

_Generate = Callable[..., AsyncGenerator[RequestOutput, None]]


def record_generations() -> None:
    """Make vLLM's API server report prompts to the recorder, for requests that the frontend marks as recorded."""
    # Imported here, because only the API server needs it.
    from vllm.v1.engine.async_llm import AsyncLLM

    if hasattr(AsyncLLM.generate, "is_recorded"):
        return
    if hasattr(AsyncLLM.generate, "intercept"):
        AsyncLLM.generate.intercept(_recorded)
    else:
        AsyncLLM.generate = _recorded(AsyncLLM.generate)
    AsyncLLM.generate.is_recorded = True


def _recorded(generate: _Generate) -> _Generate:
    @wraps(generate)
    def generate_recorded(
        engine: Any, prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        outputs = generate(engine, prompt, sampling_params, *args, **kwargs)
        asker = current_asker()
        if asker is None:
            return outputs
        begin = partial(_begun, asker, engine.vllm_config.cache_config.block_size, prompt, kwargs.get("lora_request"))
        return _heard(outputs, asker, begin, sampling_params.output_kind)

    return generate_recorded


def _begun(asker: Asker, block_tokens: int, prompt: Any, adapter: Any) -> Generation:
    generation = asker.begin(block_tokens)
    if isinstance(prompt, Mapping):
        generation.prompt = prompt.get("prompt_token_ids") or ()
    generation.apart = apart_of(prompt, adapter)
    generation.media = media_of(prompt)
    return generation


async def _heard(
    outputs: AsyncGenerator[RequestOutput, None],
    asker: Asker,
    begin: Callable[[], Generation],
    kind: RequestOutputKind,
) -> AsyncGenerator[RequestOutput, None]:
    # Begin here, at the first iteration, when the engine gets the prompt. Without iteration, `finally` would never run.
    generation = begin()
    try:
        async for output in outputs:
            _hear(output, asker, generation, kind)
            yield output
    finally:
        asker.end(generation)
        await outputs.aclose()


def _hear(output: RequestOutput, asker: Asker, generation: Generation, kind: RequestOutputKind) -> None:
    generation.prompt = output.prompt_token_ids or generation.prompt
    generation.cached_tokens = output.num_cached_tokens or generation.cached_tokens
    for completion in output.outputs:
        answer = generation.answers.setdefault(completion.index, [])
        if kind is not RequestOutputKind.DELTA:
            answer.clear()
        answer.extend(completion.token_ids)
        generation.finish = completion.finish_reason or generation.finish
    if generation.first_token_seconds is None and any(generation.answers.values()):
        generation.first_token_seconds = asker.recorder.now() - generation.arrival
        # For an answer in one piece, use vLLM's time to first token, although vLLM's clock starts a little earlier.
        if output.metrics is not None and output.metrics.first_token_latency:
            generation.first_token_seconds = min(generation.first_token_seconds, output.metrics.first_token_latency)
