"""Adds the seal of the current task to requests that vLLM has built without a seal.

Upstream change that would make this module unnecessary: a plugin that may change the parameters of a request before
``AsyncLLM.generate``.
"""

from copy import copy

from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams

from tenantzone_runtime.frontend.request_context import current_seal
from tenantzone_runtime.seal import SEAL_ARGUMENT


def with_borne_seal(params: SamplingParams | PoolingParams) -> SamplingParams | PoolingParams:
    """Returns a request's parameters with the current task's seal. Keeps a seal that is already there.

    The scheduler checks that a request's seal matches the request's salt.
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
    """Returns a copy of the parameters with these extra arguments, because several requests may share the original."""
    params = copy(params)
    setattr(params, "extra_kwargs" if isinstance(params, PoolingParams) else "extra_args", arguments)
    return params
