"""How a client hears of what the scheduler refused: as its own mistake, and not as an error of the server.

The scheduler can only end a request with an error, and vLLM's API server answers each such with 500. So the scheduler
writes the refusal where a stop string would stand, which no request that ended with an error has; in the API server it
is passed on to the front door, which answers.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final, NamedTuple

from vllm.outputs import RequestOutput
from vllm.v1.engine import EngineCoreOutputs

from tenantzone_runtime.door.verdict import arrive, refuse
from tenantzone_runtime.engine.binding import BindingError
from tenantzone_runtime.engine.grammar_validation import GrammarValidation, validate_beside_the_loop
from tenantzone_runtime.zones.audit import RefusalReason

_MARK: Final = "tenantzone refuses "
_STATUSES: Final[Mapping[RefusalReason, int]] = {
    # Zones have just come into force, and the door has not heard of it yet; or it went past the door.
    "unbound": 503,
    "unknown_tenant": 403,
    "too_long": 400,
    "unsupported": 400,
    "changed_adapter": 503,
    "queue_full": 429,
}


class EngineRefusal(NamedTuple):
    """What the scheduler says of a request that it refused."""

    status: int
    """HTTP status."""
    message: str
    retry_after: int | None
    """Seconds; None: repeated, it may be refused again."""
    closed_seconds: float
    """For which it would refuse other requests of the tenant, too."""


def mark(outputs: Iterable[EngineCoreOutputs], refused: Mapping[str, BindingError]) -> None:
    """Write into the outputs of requests that were refused, by id, why they were."""
    for of_client in outputs:
        for output in of_client.outputs:
            if (error := refused.get(output.request_id)) is not None:
                seconds = f"{error.retry_after or 0} {error.closed_seconds:.3f}"
                output.stop_reason = f"{_MARK}{_STATUSES[error.reason]} {seconds} {error}"


def refusal_in(output: RequestOutput) -> EngineRefusal | None:
    """What the scheduler has written into an output; None if it refused nothing."""
    for completion in output.outputs:
        reason = completion.stop_reason
        if completion.finish_reason == "error" and isinstance(reason, str) and reason.startswith(_MARK):
            status, seconds, closed, message = reason.removeprefix(_MARK).split(" ", 3)
            return EngineRefusal(int(status), message, int(seconds) or None, float(closed))
    return None


_Generate = Callable[..., AsyncGenerator[RequestOutput, None]]


def pass_refusals_on() -> None:
    """Have vLLM's API server tell the front door what has arrived or was refused, and look at grammars in its time."""
    # Imported here: only the API server has need of it.
    from vllm.v1.engine.async_llm import AsyncLLM

    if not hasattr(AsyncLLM.generate, "passes_refusals_on"):
        AsyncLLM.generate = _passing_refusals_on(AsyncLLM.generate, validate_beside_the_loop())
        AsyncLLM.generate.passes_refusals_on = True


def _passing_refusals_on(generate: _Generate, validation: GrammarValidation) -> _Generate:
    @wraps(generate)
    async def generate_or_refuse(
        engine: Any, prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        arrive()
        known = engine.input_processor
        await validation.before(sampling_params, engine.model_config, known.structured_outputs_config, known.tokenizer)
        outputs = generate(engine, prompt, sampling_params, *args, **kwargs)
        try:
            async for output in outputs:
                if (refusal := refusal_in(output)) is not None:
                    await refuse(*refusal)
                yield output
        finally:
            # At once, and not when it is collected: it aborts what else the request has in the engine.
            await outputs.aclose()

    return generate_or_refuse
