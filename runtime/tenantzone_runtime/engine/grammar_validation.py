"""Lets vLLM's API server look at a request's schema or grammar beside its event loop, tenant by tenant.

vLLM builds a grammar of it only to see whether it can, on the event loop: everybody waits meanwhile. Here it does so on
a thread before, which the grammar libraries let others run beside, and is not asked again.
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
"""vLLM's first choice."""

_Validate = Callable[[SamplingParams, Any, Any, Any], None]


class GrammarValidation:
    """Validates what requests want of their answers' form, no two of one tenant at a time.

    Args:
        validate: vLLM's own.
    """

    def __init__(self, validate: _Validate) -> None:
        self._validate = validate
        self._workers = ThreadPoolExecutor(_WORKERS, "tenantzone-grammars")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def before(self, params: SamplingParams, model_config: Any, config: Any, tokenizer: Any) -> None:
        """Validate in advance what vLLM is about to.

        Raises:
            ValueError: of vLLM's, as it would be raised later; or a tenant's would take another library than others'.
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
        """Take the place of vLLM's own, and leave out what was done before."""
        if not getattr(params.structured_outputs, _VALIDATED, False):
            self._validate(params, model_config, config, tokenizer)


def _check_library(params: SamplingParams) -> None:
    """Check that vLLM has not passed a schema on to a library that is there for what xgrammar can't read.

    The first request decides which library an engine reads all grammars with, whoever sends it; and by a pattern of a
    few bytes, outlines can be kept busy for hours.

    Raises:
        ValueError: it has.
    """
    wanted = params.structured_outputs
    if wanted is not None and wanted._backend_was_auto and wanted._backend != _LIBRARY:
        raise ValueError(
            f"The form that the answer should have is not supported: {_LIBRARY} can't read it, and {wanted._backend} "
            "is not in use for this model"
        )


def _tenant_of(params: SamplingParams) -> str:
    """Whose request it is, by the seal that the door has just made; "" for one without."""
    seal = (params.extra_args or {}).get(SEAL_ARGUMENT, "")
    return str(seal).split(".")[1] if str(seal).count(".") else ""


_installed: GrammarValidation | None = None


def validate_beside_the_loop() -> GrammarValidation:
    """Put it into the place of vLLM's own validation, once in a process."""
    global _installed
    if _installed is None:
        _installed = validation = GrammarValidation(SamplingParams._validate_structured_outputs)

        def validate_once(params: SamplingParams, model_config: Any, config: Any, tokenizer: Any) -> None:
            validation.once(params, model_config, config, tokenizer)

        SamplingParams._validate_structured_outputs = validate_once
    return _installed
