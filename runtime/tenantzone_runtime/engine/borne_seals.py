"""Puts the seal that a request's task bears into the request, where vLLM has made it without."""

from copy import copy

from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams

from tenantzone_runtime.door.bearing import borne_seal
from tenantzone_runtime.seal import SEAL_ARGUMENT


def with_borne_seal(params: SamplingParams | PoolingParams) -> SamplingParams | PoolingParams:
    """The parameters of a request that is handed to the engine, with the seal; the same ones if they have it already.

    It fits the salt of its own request and no other, which the scheduler checks.
    """
    seal = borne_seal()
    arguments = arguments_of(params)
    if not seal or SEAL_ARGUMENT in arguments:
        return params
    return with_arguments(params, {**arguments, SEAL_ARGUMENT: seal})


def arguments_of(params: SamplingParams | PoolingParams) -> dict[str, object]:
    """What a request carries that is none of vLLM's own parameters."""
    arguments = params.extra_kwargs if isinstance(params, PoolingParams) else params.extra_args
    return arguments or {}


def with_arguments(
    params: SamplingParams | PoolingParams, arguments: dict[str, object]
) -> SamplingParams | PoolingParams:
    """A copy of the parameters with these: others, such as choices of the same prompt, may share what is given."""
    params = copy(params)
    setattr(params, "extra_kwargs" if isinstance(params, PoolingParams) else "extra_args", arguments)
    return params
