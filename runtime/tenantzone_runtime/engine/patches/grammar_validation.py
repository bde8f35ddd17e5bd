"""Makes vLLM's API server validate schemas and grammars on threads, at most one per tenant at a time.

Stock vLLM builds a grammar on the API server's event loop only to validate it, while all requests wait. With this
module, a thread validates the grammar first, and vLLM does not validate it again. The event loop continues meanwhile,
because the grammar libraries release the GIL.

Upstream change that would make this module unnecessary: ``AsyncLLM`` validates structured outputs in an executor.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakValueDictionary

from vllm.sampling_params import SamplingParams

from tenantzone_runtime.seal import SEAL_ARGUMENT

_VALIDATED: Final = "tenantzone_validated"
_WORKERS: Final = 2
_LIBRARY: Final = "xgrammar"
"""The grammar library that vLLM tries first."""

_Validate = Callable[[SamplingParams, Any, Any, Any], None]


class GrammarValidation:
    """Validates schemas and grammars of requests, at most one per tenant at a time.

    Args:
        validate: vLLM's function that validates a schema or grammar.
    """

    def __init__(self, validate: _Validate) -> None:
        self._validate = validate
        self._workers = ThreadPoolExecutor(_WORKERS, "tenantzone-grammars")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def before(self, params: SamplingParams, model_config: Any, config: Any, tokenizer: Any) -> None:
        """Validate a request's schema or grammar on a thread, so that vLLM does not validate it on the event loop.

        Raises:
            ValueError: vLLM rejects the schema or grammar, or would use a grammar library other than xgrammar.
        """
        if getattr(params, "structured_outputs", None) is None:
            return
        turn = self._turns.setdefault(_tenant_of(params), asyncio.Lock())
        async with turn:
            await asyncio.get_running_loop().run_in_executor(
                self._workers, self._validate, params, model_config, config, tokenizer
            )
        if _tenant_of(params):
            _check_library(params)
        setattr(params.structured_outputs, _VALIDATED, True)

    def once(self, params: SamplingParams, model_config: Any, config: Any, tokenizer: Any) -> None:
        """Validate a request's schema or grammar as vLLM does, unless `before` has validated it."""
        if not getattr(params.structured_outputs, _VALIDATED, False):
            self._validate(params, model_config, config, tokenizer)


def _check_library(params: SamplingParams) -> None:
    """Check that vLLM has not selected another library because xgrammar can't read the schema or grammar.

    vLLM uses the library of an engine's first structured request for all later requests, so one tenant would select the
    library for all tenants. Also, a pattern of a few bytes can keep the library outlines busy for hours.

    Raises:
        ValueError: vLLM has selected another library.
    """
    wanted = params.structured_outputs
    if wanted is not None and wanted._backend_was_auto and wanted._backend != _LIBRARY:
        raise ValueError(
            f"The schema or grammar of the structured output is not supported: {_LIBRARY} can't read it, and "
            f"{wanted._backend} is not in use for this model; send another schema or grammar"
        )


def _tenant_of(params: SamplingParams) -> str:
    """Returns the tenant in a request's seal, without checking the seal, or "" if the request has no seal."""
    seal = (params.extra_args or {}).get(SEAL_ARGUMENT, "")
    return str(seal).split(".")[1] if str(seal).count(".") else ""


_installed: GrammarValidation | None = None


def validate_beside_the_loop() -> GrammarValidation:
    """Replace vLLM's validation in this process, if not done before. Returns the object that validates."""
    global _installed
    if _installed is None:
        _installed = validation = GrammarValidation(SamplingParams._validate_structured_outputs)

        def validate_once(params: SamplingParams, model_config: Any, config: Any, tokenizer: Any) -> None:
            validation.once(params, model_config, config, tokenizer)

        SamplingParams._validate_structured_outputs = validate_once
    return _installed
