"""How many blocks a request asks for: now, in its next step, at its longest."""

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request


class Demand:
    """What vLLM's own checks will ask for, known before it asks.

    Args:
        scheduler: whose requests.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def at_most(self, request: Request) -> int:
        """Blocks that a request uses when it is at its longest."""
        return self._blocks(min(request.num_prompt_tokens + request.max_tokens, self._scheduler.max_model_len))

    def to_admit_without_hits(self, request: Request) -> int:
        """Blocks to admit a request if none of its prefix is cached: no less than ``to_admit``, and cheap to tell."""
        return self._blocks(request.num_tokens) + self._watermark()

    def to_admit(self, request: Request) -> int:
        """Blocks that ``allocate_slots`` will ask for on admission, after prefix hits."""
        scheduler = self._scheduler
        manager = scheduler.kv_cache_manager
        computed, hit_tokens, _ = manager.get_computed_blocks(request)
        tokens = int(request.num_tokens)
        if not scheduler.scheduler_reserve_full_isl:
            tokens = min(tokens, hit_tokens + int(scheduler.max_num_scheduled_tokens))
        tokens = min(tokens, scheduler.max_model_len)
        blocks = manager.coordinator.get_num_blocks_to_allocate(
            request_id=request.request_id,
            num_tokens=tokens,
            new_computed_blocks=computed.blocks,
            num_encoder_tokens=0,
            total_computed_tokens=hit_tokens,
            num_local_computed_tokens=hit_tokens,
            num_tokens_main_model=tokens,
            apply_admission_cap=True,
            prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
        )
        return int(blocks) + self._watermark()

    def to_continue(self, request: Request) -> int:
        """Blocks that a running request asks for in its next step, at the most."""
        scheduler = self._scheduler
        tokens = min(
            request.num_tokens_with_spec + request.num_output_placeholders,
            request.num_computed_tokens + int(scheduler.max_num_scheduled_tokens),
            scheduler.max_model_len,
        )
        held = len(scheduler.kv_cache_manager.get_blocks(request.request_id).blocks[0])
        return max(1, self._blocks(tokens) - held)

    def _blocks(self, tokens: int) -> int:
        return -(-int(tokens) // int(self._scheduler.block_size))

    def _watermark(self) -> int:
        """Blocks that vLLM wants free beyond the request's own; it waives that while nothing runs."""
        return int(self._scheduler.kv_cache_manager.watermark_blocks) if self._scheduler.running else 0
