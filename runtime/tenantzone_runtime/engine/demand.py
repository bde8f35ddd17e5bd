"""How many blocks a request asks for, now, in its next step, and at its longest, by vLLM's own reckoning."""

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request


class Demand:
    """The blocks that vLLM's own checks will ask for, known before they ask.

    Args:
        scheduler: whose requests.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        caps = [
            caches.max_admission_blocks_per_request
            for caches in scheduler.kv_cache_manager.coordinator.single_type_managers
        ]
        self._cap = caps[0] if len(caps) == 1 else None
        """Blocks that a request uses at most however long it is, where all layers see back so far and no farther."""
        self.drafting = int(scheduler.num_spec_tokens) + int(scheduler.num_lookahead_tokens)
        """Slots that a step needs beyond the next token of a request: for what was drafted, and to draft in."""
        steps = int(scheduler.vllm_config.max_concurrent_batches)
        self._beyond = self.drafting + int(scheduler.num_spec_tokens) * (steps - 1)
        """Slots that a request may use beyond its last token: each step in flight may bring none of its drafts."""

    @property
    def max_chunk(self) -> int:
        """The most tokens of one request that a step computes."""
        scheduler = self._scheduler
        budget = int(scheduler.max_num_scheduled_tokens)
        threshold = int(scheduler.scheduler_config.long_prefill_token_threshold)
        requests = sum(scheduler.get_request_counts())
        if threshold <= 0 or requests <= 1:
            return budget
        if scheduler.adaptive_long_prefill_threshold:
            threshold = max(threshold, budget // requests)
        return min(budget, threshold)

    def peak(self, tokens: int) -> int:
        """Blocks that a request of so many tokens uses when it uses the most."""
        blocks = self._blocks(min(tokens + self._beyond, self._scheduler.max_model_len))
        return blocks if self._cap is None else min(blocks, self._cap)

    def tokens_in(self, blocks: int) -> int:
        """How long a request may become that uses so many blocks at the most, with all that it computes for nothing."""
        slots = blocks * int(self._scheduler.block_size)
        return slots if slots >= self._scheduler.max_model_len else slots - self._beyond

    def at_most(self, request: Request) -> int:
        """Blocks to admit a request if none of its prefix is cached: cheap to tell, and no less than ``to_admit``."""
        return self._blocks(min(request.num_tokens + self.drafting, self._scheduler.max_model_len))

    def to_admit(self, request: Request) -> int:
        """Blocks that a request puts to use on admission, after prefix hits: for its whole prompt, and to draft in.

        vLLM can be told to ask for the first chunk only. With zones that would admit requests which can't go on, and
        whose blocks others wait for meanwhile.
        """
        scheduler = self._scheduler
        computed, hit_tokens, _ = scheduler.kv_cache_manager.look_up(request)
        whole = min(int(request.num_tokens) + self.drafting, scheduler.max_model_len)
        blocks = self._to_allocate(request, computed.blocks, hit_tokens, whole, capped=True)
        if self._cap is None:
            return blocks
        # vLLM asks a second time, for the first chunk, and then without the cap.
        first = min(whole, hit_tokens + int(scheduler.max_num_scheduled_tokens) + self.drafting)
        return max(blocks, self._to_allocate(request, computed.blocks, hit_tokens, first, capped=False))

    def to_continue(self, request: Request) -> int:
        """Blocks that a running request asks for in its next step, at the most."""
        tokens = min(
            request.num_tokens_with_spec + request.num_output_placeholders,
            request.num_computed_tokens + self.max_chunk,
        )
        return self.of_running(request, tokens - request.num_computed_tokens)

    def of_running(self, request: Request, num_new_tokens: int) -> int:
        """Blocks that a running request asks for to compute so many tokens more, and to draft others after them."""
        scheduler = self._scheduler
        manager = scheduler.kv_cache_manager
        computed = request.num_computed_tokens
        tokens = min(computed + num_new_tokens + int(scheduler.num_lookahead_tokens), scheduler.max_model_len)
        return self._to_allocate(request, manager.empty_kv_cache_blocks.blocks, computed, tokens, capped=False)

    def _to_allocate(
        self, request: Request, hits: tuple[object, ...], computed_tokens: int, tokens: int, *, capped: bool
    ) -> int:
        blocks = self._scheduler.kv_cache_manager.coordinator.get_num_blocks_to_allocate(
            request_id=request.request_id,
            num_tokens=tokens,
            new_computed_blocks=hits,
            num_encoder_tokens=0,
            total_computed_tokens=computed_tokens,
            num_local_computed_tokens=computed_tokens,
            num_tokens_main_model=tokens,
            apply_admission_cap=capped,
            prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
        )
        return int(blocks)

    def _blocks(self, tokens: int) -> int:
        return -(-int(tokens) // int(self._scheduler.block_size))
