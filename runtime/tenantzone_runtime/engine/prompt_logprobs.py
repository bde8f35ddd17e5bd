"""Bounds the log probabilities of prompts in one answer, in vLLM's API server, where prompts have become tokens.

The front door can't tell how many tokens a text or an image will be. vLLM makes an object of each log probability on
its event loop, and one answer has those of all prompts of a body, as often as each is answered.
"""

from collections.abc import Mapping
from typing import Any

from vllm.sampling_params import SamplingParams

from tenantzone_runtime.door.answers import Refusal
from tenantzone_runtime.door.bearing import borne
from tenantzone_runtime.door.sampling import check_prompt_logprobs
from tenantzone_runtime.door.verdict import refuse_with


async def bound_prompt_logprobs(prompt: Any, params: SamplingParams, vocabulary: int) -> None:
    """Have the door refuse the request that this is called for, if its answer would become too large.

    Args:
        prompt: one of the request's, as vLLM hands it to the engine.
        params: what is asked for.
        vocabulary: tokens of the model.
    """
    bearing = borne()
    if bearing is None or params.prompt_logprobs is None:
        return
    each = vocabulary if params.prompt_logprobs < 0 else params.prompt_logprobs + 1
    bearing.prompt_logprobs += each * _tokens(prompt) * max(1, params.n)
    try:
        check_prompt_logprobs(bearing.prompt_logprobs, bearing.prompt_logprobs_field)
    except Refusal as refusal:
        await refuse_with(refusal)


def _tokens(prompt: Any) -> int:
    if not isinstance(prompt, Mapping):
        return 0
    if "decoder_prompt" in prompt:
        return _tokens(prompt["decoder_prompt"])
    known = (prompt.get(name) for name in ("prompt_token_ids", "prompt_embeds"))
    return max((len(each) for each in known if each is not None), default=0)
