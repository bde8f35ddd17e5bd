"""Lets vLLM's API server validate a request's schema or grammar off its event loop, one per tenant at a time.

vLLM builds a grammar only to validate it, on the event loop, and all requests wait meanwhile. Here a thread validates
it first, during which the grammar libraries let other threads run, and vLLM does not validate it again.
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
    """Validates the answer formats that requests ask for, at most one of each tenant at a time.

    Args:
        validate: vLLM's own validation.
    """

    def __init__(self, validate: _Validate) -> None:
        self._validate = validate
        self._workers = ThreadPoolExecutor(_WORKERS, "tenantzone-grammars")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def before(self, params: SamplingParams, model_config: Any, config: Any, tokenizer: Any) -> None:
        """Validate in advance what vLLM is about to validate.

        Raises:
            ValueError: vLLM's own error, as it would be raised later, or the request would need another grammar
                library.
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
        """Replace vLLM's own validation, and skip what was validated before."""
        if not getattr(params.structured_outputs, _VALIDATED, False):
            self._validate(params, model_config, config, tokenizer)


def _check_library(params: SamplingParams) -> None:
    """Check that vLLM has not fallen back to a library for schemas that xgrammar can't read.

    The first request would decide which library an engine uses for all grammars, whichever tenant sends it; and a
    pattern of a few bytes can keep outlines busy for hours.

    Raises:
        ValueError: vLLM has fallen back.
    """
    wanted = params.structured_outputs
    if wanted is not None and wanted._backend_was_auto and wanted._backend != _LIBRARY:
        raise ValueError(
            f"The form that the answer should have is not supported: {_LIBRARY} can't read it, and {wanted._backend} "
            "is not in use for this model"
        )


def _tenant_of(params: SamplingParams) -> str:
    """Returns the tenant of a request, from the seal that the frontend has just made; "" if there is no seal."""
    seal = (params.extra_args or {}).get(SEAL_ARGUMENT, "")
    return str(seal).split(".")[1] if str(seal).count(".") else ""


_installed: GrammarValidation | None = None


def validate_beside_the_loop() -> GrammarValidation:
    """Install the validation in place of vLLM's own, once in a process."""
    global _installed
    if _installed is None:
        _installed = validation = GrammarValidation(SamplingParams._validate_structured_outputs)

        def validate_once(params: SamplingParams, model_config: Any, config: Any, tokenizer: Any) -> None:
            validation.once(params, model_config, config, tokenizer)

        SamplingParams._validate_structured_outputs = validate_once
    return _installed
