"""The number of blocks that a request needs now, in its next step and at its peak, by vLLM's own calculation.

A model has one or several groups of KV caches, whose layers share block tables. All groups take their blocks from one
pool, and a request's demand is the sum over the groups.
"""

from bisect import bisect_right
from dataclasses import dataclass

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import MambaManager, SingleTypeKVCacheManager
from vllm.v1.request import Request


@dataclass(frozen=True, slots=True)
class _Group:
    block_tokens: int
    spare: int
    """Blocks in addition to those of tokens, for the states of drafted tokens."""
    most: int | None
    """The maximum blocks of a request of any length, for layers with a limited attention window; else None."""

    def at_most(self, tokens: int) -> int:
        """Returns the peak number of blocks of this group that a request of this many tokens uses."""
        blocks = -(-tokens // self.block_tokens) + self.spare
        return blocks if self.most is None else min(blocks, self.most)


class Demand:
    """Predicts the number of blocks that vLLM's own checks will ask for.

    Args:
        scheduler: the scheduler of the requests.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._manager = scheduler.kv_cache_manager
        self.drafting = int(scheduler.num_spec_tokens) + int(scheduler.num_lookahead_tokens)
        """Slots that a step needs beyond the next token of a request: for drafted tokens, and to draft in."""
        steps = int(scheduler.vllm_config.max_concurrent_batches)
        self._beyond = self.drafting + int(scheduler.num_spec_tokens) * (steps - 1)
        """Slots that a request may use beyond its last token: a step in flight may accept none of its drafts."""
        managers = self._manager.coordinator.single_type_managers
        self._groups = [self._group(caches, steps) for caches in managers]
        self._has_caps = any(caches.max_admission_blocks_per_request is not None for caches in managers)
        self._lengths: dict[tuple[int, int], int] = {}

    def _group(self, caches: SingleTypeKVCacheManager, steps: int) -> _Group:
        block_tokens, most = int(caches.block_size), caches.max_admission_blocks_per_request
        coordinator = self._manager.coordinator
        # A hit that ends within a block is copied, and takes a block of its own.
        copied = int(coordinator.enable_partial_hash_hits and block_tokens > coordinator.hash_block_size)
        if not isinstance(caches, MambaManager):
            # vLLM's cap leaves out the slots that a step needs to draft.
            capped = None if most is None else int(most) + copied - (-self.drafting // block_tokens)
            return _Group(block_tokens, copied, capped)
        drafted = int(caches.num_speculative_blocks)
        if caches.mamba_cache_mode == "align":
            # The last confirmed state, those of the steps in flight, and copies of states within blocks.
            in_step = -(-(1 + int(self._scheduler.num_spec_tokens)) // block_tokens)
            checkpoints = int(caches.has_prefill_checkpoint_blocks)
            copied = int(coordinator.enable_partial_hash_hits)
            # Behind loaded tokens, however few, a checkpoint takes a block in addition to the state's.
            additional = drafted + copied + (checkpoints if self._scheduler.connector is not None else 0)
            return _Group(block_tokens, additional, 1 + steps * (in_step + checkpoints) + drafted + copied)
        return _Group(block_tokens, drafted, None)

    @property
    def max_chunk(self) -> int:
        """The maximum number of tokens of one request that a step computes."""
        scheduler = self._scheduler
        budget = int(scheduler.max_num_scheduled_tokens)
        threshold = int(scheduler.scheduler_config.long_prefill_token_threshold)
        # This is read several times for each prompt in each step: count requests only if their number matters.
        if threshold <= 0 or (requests := sum(scheduler.get_request_counts())) <= 1:
            return budget
        if scheduler.adaptive_long_prefill_threshold:
            threshold = max(threshold, budget // requests)
        return min(budget, threshold)

    def peak(self, tokens: int) -> int:
        """Returns the peak number of blocks that a request of this many tokens uses."""
        return self._at_most(min(tokens + self._beyond, self._scheduler.max_model_len))

    def tokens_in(self, blocks: int) -> int:
        """Returns the maximum length in tokens of a request that uses at most this many blocks, wasted tokens included.

        The result exceeds the model's maximum length if the blocks suffice for that length.
        """
        key = blocks, int(self._scheduler.max_model_len)
        if key not in self._lengths:
            self._lengths[key] = bisect_right(range(1, key[1] + 2), blocks, key=self.peak)
        return self._lengths[key]

    def at_most(self, request: Request) -> int:
        """Returns an upper bound of ``to_admit`` that is cheap to compute: the blocks if no prefix is cached."""
        return self._at_most(min(request.num_tokens + self.drafting, self._scheduler.max_model_len))

    def begun_by(self, tokens: int) -> int:
        """Returns the maximum number of blocks that a request begins with this many further tokens."""
        return self._at_most(tokens)

    def to_admit(self, request: Request) -> int:
        """Returns the number of blocks that admission takes after prefix hits: for the whole prompt, and to draft in.

        vLLM can be configured to ask for the first chunk only. With zones, that would admit requests that can't
        continue and whose blocks others wait for meanwhile.
        """
        scheduler = self._scheduler
        blocks = self._to_compute(request)
        if scheduler.connector is None or not self._manager.landing_blocks:
            return blocks
        # If part of the prompt is loaded from a tier, it takes these in addition to the blocks of the loaded part.
        return max(blocks, min(blocks + self._manager.landing_blocks, self.at_most(request)))

    def _to_compute(self, request: Request) -> int:
        scheduler = self._scheduler
        computed, hit_tokens, _ = self._manager.look_up(request)
        whole = min(int(request.num_tokens) + int(scheduler.num_spec_tokens), scheduler.max_model_len)
        blocks = self._to_begin(request, computed.blocks, hit_tokens, whole, is_capped=True)
        if not self._has_caps:
            return blocks
        # vLLM asks a second time, for the first chunk, and then without the cap.
        first = min(whole, hit_tokens + int(scheduler.max_num_scheduled_tokens) + int(scheduler.num_spec_tokens))
        return max(blocks, self._to_begin(request, computed.blocks, hit_tokens, first, is_capped=False))

    def _to_begin(
        self, request: Request, hits: tuple[object, ...], hit_tokens: int, tokens: int, *, is_capped: bool
    ) -> int:
        lookahead = int(self._scheduler.num_lookahead_tokens)
        blocks: int = self._manager.blocks_to_allocate(
            request, hits, hit_tokens, tokens, lookahead, is_capped=is_capped
        )
        return blocks

    def to_continue(self, request: Request) -> int:
        """Returns the maximum number of blocks that a running request asks for in its next step."""
        scheduler = self._scheduler
        computed = request.num_computed_tokens
        tokens = min(request.num_tokens_with_spec + request.num_output_placeholders - computed, self.max_chunk)
        if scheduler.need_mamba_block_aligned_split:
            tokens = scheduler._mamba_block_aligned_split(request, tokens)
        return self.of_running(request, tokens)

    def tokens_within(self, request: Request, blocks: int) -> int:
        """Returns the prompt tokens that a running request could compute next with at most this many more blocks."""
        tokens = min(int(request.num_tokens - request.num_computed_tokens), self.max_chunk)
        return bisect_right(range(1, tokens + 1), blocks, key=lambda count: self.of_running(request, count))

    def of_running(self, request: Request, num_new_tokens: int) -> int:
        """Returns the blocks that a running request needs to compute this many more tokens and draft after them."""
        blocks: int = self._manager.blocks_to_continue(request, num_new_tokens)
        return blocks

    def _at_most(self, tokens: int) -> int:
        tokens = int(tokens)
        if len(self._groups) == 1:
            return self._groups[0].at_most(tokens)
        return sum(group.at_most(tokens) for group in self._groups)
