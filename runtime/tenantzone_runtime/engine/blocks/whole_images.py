"""Computes all tokens of an image in one step if vLLM's option ``--disable-chunked-mm-input`` is on.

Models such as Gemma 3 need this option, because the tokens of an image attend to each other. vLLM ends a prompt's chunk
before an image that does not fit into the step. But vLLM decides this before the zone core shortens the chunk to the
request's share of the step, so the shorter chunk must be checked again.
"""

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request


class WholeImages:
    """Decides where the chunks of prompts may end.

    As in vLLM, images with more tokens than a step are split. If chunks must be aligned to cached states, all images
    may be split.

    Args:
        scheduler: the scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def has_some(self, request: Request) -> bool:
        """Returns whether a request's prompt contains images that must be computed in one step."""
        if not request.mm_features:
            return False
        scheduler = self._scheduler
        # In an encoder-decoder model, the encoder's input is not part of the prompt's tokens.
        is_on: bool = scheduler.scheduler_config.disable_chunked_mm_input and not scheduler.is_encoder_decoder
        return is_on and not scheduler.need_mamba_block_aligned_split

    def up_to_first(self, request: Request, computed_tokens: int, tokens: int) -> int:
        """Returns how many of the next tokens of a prompt can be computed without ending within an image.

        Args:
            request: the request of the prompt.
            computed_tokens: the number of the prompt's computed tokens.
            tokens: the maximum number of tokens to compute.
        """
        end = computed_tokens + tokens
        for begin, length in self._places(request):
            if computed_tokens <= begin < end < begin + length:
                return max(0, begin - self._ahead - computed_tokens)
        return tokens

    def through_first(self, request: Request, computed_tokens: int) -> int:
        """Returns the minimum number of tokens to compute next: up to the end of an image that begins here, else 1."""
        for begin, length in self._places(request):
            if begin - self._ahead <= computed_tokens <= begin:
                return begin + length - computed_tokens
        return 1

    @property
    def _ahead(self) -> int:
        """Number of tokens that a draft model reads beyond the computed tokens."""
        return int(self._scheduler.num_prefill_lookahead)

    def _places(self, request: Request) -> list[tuple[int, int]]:
        """Returns the position and the number of tokens of each image that must be computed in one step."""
        if not self.has_some(request):
            return []
        scheduler, config = self._scheduler, self._scheduler.scheduler_config
        most = int(scheduler.max_num_scheduled_tokens)
        if config.long_prefill_token_threshold > 0:
            most = min(most, int(config.long_prefill_token_threshold))
        places = (feature.mm_position for feature in request.mm_features)
        return [(int(place.offset), int(place.length)) for place in places if place.length + self._ahead <= most]
