"""Images that are computed in one step, as their tokens attend to each other (``--disable-chunked-mm-input``).

vLLM turns that on by itself for models such as Gemma 3. It ends a chunk of a prompt before an image that does not fit
into the step, and then asks for a share of the step, which may be less.
"""

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request


class WholeImages:
    """Where the chunks of prompts may end.

    An image that no step has the tokens for is cut, as in vLLM, and so is any where chunks end where states are kept.

    Args:
        scheduler: whose requests.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def has_some(self, request: Request) -> bool:
        """Whether any image of a request's prompt is to be whole."""
        if not request.mm_features:
            return False
        scheduler = self._scheduler
        # What an encoder-decoder model's encoder takes is not among the tokens of the prompt.
        is_on: bool = scheduler.scheduler_config.disable_chunked_mm_input and not scheduler.is_encoder_decoder
        return is_on and not scheduler.need_mamba_block_aligned_split

    def up_to_first(self, request: Request, computed_tokens: int, tokens: int) -> int:
        """How many of the next tokens of a prompt can be computed such that they end in no image.

        Args:
            request: whose prompt.
            computed_tokens: of it.
            tokens: that are to be computed, at the most.
        """
        end = computed_tokens + tokens
        for begin, length in self._places(request):
            if computed_tokens <= begin < end < begin + length:
                return max(0, begin - self._ahead - computed_tokens)
        return tokens

    def through_first(self, request: Request, computed_tokens: int) -> int:
        """The fewest tokens of a prompt that can be computed next: the image that comes now, or 1."""
        for begin, length in self._places(request):
            if begin - self._ahead <= computed_tokens <= begin:
                return begin + length - computed_tokens
        return 1

    @property
    def _ahead(self) -> int:
        """How many tokens behind those that are computed a model that drafts looks at."""
        return int(self._scheduler.num_prefill_lookahead)

    def _places(self, request: Request) -> list[tuple[int, int]]:
        """First token and length of each image of a request that is to be whole."""
        if not self.has_some(request):
            return []
        scheduler, config = self._scheduler, self._scheduler.scheduler_config
        most = int(scheduler.max_num_scheduled_tokens)
        if config.long_prefill_token_threshold > 0:
            most = min(most, int(config.long_prefill_token_threshold))
        places = (feature.mm_position for feature in request.mm_features)
        return [(int(place.offset), int(place.length)) for place in places if place.length + self._ahead <= most]
