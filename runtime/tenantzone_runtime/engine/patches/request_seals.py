"""Adds the sealed context of the current task to requests that vLLM built without the seal.

Upstream change that would make this module unnecessary: a plugin that may change the parameters of a request before
``AsyncLLM.generate``.
"""

from copy import copy

from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams

from tenantzone_runtime.frontend.request_context import current_seal
from tenantzone_runtime.seal import SEAL_ARGUMENT


def with_borne_seal(params: SamplingParams | PoolingParams) -> SamplingParams | PoolingParams:
    """Returns the parameters of a request with the current task's seal, or the same object if it already has a seal.

    The scheduler checks that the seal matches the salt of its request.
    """
    seal = current_seal()
    arguments = arguments_of(params)
    if not seal or SEAL_ARGUMENT in arguments:
        return params
    return with_arguments(params, {**arguments, SEAL_ARGUMENT: seal})


def arguments_of(params: SamplingParams | PoolingParams) -> dict[str, object]:
    """Returns the extra arguments in a request's parameters."""
    arguments = params.extra_kwargs if isinstance(params, PoolingParams) else params.extra_args
    return arguments or {}


def with_arguments(
    params: SamplingParams | PoolingParams, arguments: dict[str, object]
) -> SamplingParams | PoolingParams:
    """Returns a copy of the parameters with these extra arguments. The original may be shared by several requests."""
    params = copy(params)
    setattr(params, "extra_kwargs" if isinstance(params, PoolingParams) else "extra_args", arguments)
    return params
