"""Computes the number of blocks that a request needs now, in its next step and at its peak, as vLLM does.

A model has one or several KV cache groups, and the layers of a group share block tables. All groups take their blocks
from one pool, so a request's demand is the sum over the groups.
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
    """Number of blocks in addition to the blocks of tokens, for states of drafted tokens and copies."""
    most: int | None
    """Maximum number of blocks of a request, regardless of its length. None unless the attention window is limited."""

    def at_most(self, tokens: int) -> int:
        """Returns the peak number of blocks of this group for a request of this many tokens."""
        blocks = -(-tokens // self.block_tokens) + self.spare
        return blocks if self.most is None else min(blocks, self.most)


class Demand:
    """Predicts the number of blocks that vLLM will require.

    Args:
        scheduler: the scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._manager = scheduler.kv_cache_manager
        self.drafting = int(scheduler.num_spec_tokens) + int(scheduler.num_lookahead_tokens)
        """Number of slots that a step needs beyond a request's next token, to verify and to draft tokens."""
        steps = int(scheduler.vllm_config.max_concurrent_batches)
        self._beyond = self.drafting + int(scheduler.num_spec_tokens) * (steps - 1)
        """Maximum number of slots that a request uses beyond its last token, if steps in flight accept no drafts."""
        managers = self._manager.coordinator.single_type_managers
        self._groups = [self._group(caches, steps) for caches in managers]
        self._has_caps = any(caches.max_admission_blocks_per_request is not None for caches in managers)
        self._lengths: dict[tuple[int, int], int] = {}

    def _group(self, caches: SingleTypeKVCacheManager, steps: int) -> _Group:
        block_tokens, most = int(caches.block_size), caches.max_admission_blocks_per_request
        coordinator = self._manager.coordinator
        # A cached block in which a hit ends is copied to another block.
        copied = int(coordinator.enable_partial_hash_hits and block_tokens > coordinator.hash_block_size)
        if not isinstance(caches, MambaManager):
            # vLLM's cap does not include the slots for drafting.
            capped = None if most is None else int(most) + copied - (-self.drafting // block_tokens)
            return _Group(block_tokens, copied, capped)
        drafted = int(caches.num_speculative_blocks)
        if caches.mamba_cache_mode == "align":
            # Blocks for the last confirmed state, states of steps in flight, and copies of states within blocks.
            in_step = -(-(1 + int(self._scheduler.num_spec_tokens)) // block_tokens)
            checkpoints = int(caches.has_prefill_checkpoint_blocks)
            copied = int(coordinator.enable_partial_hash_hits)
            # After loaded tokens, a checkpoint takes a block in addition to the block of the state.
            additional = drafted + copied + (checkpoints if self._scheduler.connector is not None else 0)
            return _Group(block_tokens, additional, 1 + steps * (in_step + checkpoints) + drafted + copied)
        return _Group(block_tokens, drafted, None)

    @property
    def max_chunk(self) -> int:
        """Maximum number of tokens of one request that a step computes."""
        scheduler = self._scheduler
        budget = int(scheduler.max_num_scheduled_tokens)
        threshold = int(scheduler.scheduler_config.long_prefill_token_threshold)
        # Read several times for each prompt in each step, so count requests only if their number matters.
        if threshold <= 0 or (requests := sum(scheduler.get_request_counts())) <= 1:
            return budget
        if scheduler.adaptive_long_prefill_threshold:
            threshold = max(threshold, budget // requests)
        return min(budget, threshold)

    def peak(self, tokens: int) -> int:
        """Returns the peak number of blocks of a request of this many tokens."""
        return self._at_most(min(tokens + self._beyond, self._scheduler.max_model_len))

    def tokens_in(self, blocks: int) -> int:
        """Returns the maximum length in tokens of a request that uses at most this many blocks at its peak.

        If the blocks suffice for the maximum model length, the result exceeds that length.
        """
        key = blocks, int(self._scheduler.max_model_len)
        if key not in self._lengths:
            self._lengths[key] = bisect_right(range(1, key[1] + 2), blocks, key=self.peak)
        return self._lengths[key]

    def at_most(self, request: Request) -> int:
        """Returns an upper bound of ``to_admit`` that is cheap to compute, as if no prefix were cached."""
        return self._at_most(min(request.num_tokens + self.drafting, self._scheduler.max_model_len))

    def begun_by(self, tokens: int) -> int:
        """Returns the maximum number of new blocks that a request needs for this many further tokens."""
        return self._at_most(tokens)

    def to_admit(self, request: Request) -> int:
        """Returns the number of blocks beyond prefix hits to require on admission: for the whole prompt and drafts.

        vLLM can be configured to require only the blocks of the first chunk. With zones, requests could then be
        admitted that can't continue, while other requests wait for their blocks.
        """
        scheduler = self._scheduler
        blocks = self._to_compute(request)
        if scheduler.connector is None or not self._manager.landing_blocks:
            return blocks
        # If part of the prompt is loaded from a tier, the request takes these blocks in addition.
        return max(blocks, min(blocks + self._manager.landing_blocks, self.at_most(request)))

    def _to_compute(self, request: Request) -> int:
        scheduler = self._scheduler
        computed, hit_tokens, _ = self._manager.look_up(request)
        whole = min(int(request.num_tokens) + int(scheduler.num_spec_tokens), scheduler.max_model_len)
        blocks = self._to_begin(request, computed.blocks, hit_tokens, whole, is_capped=True)
        if not self._has_caps:
            return blocks
        # vLLM checks a second time, for the first chunk without the cap.
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
        """Returns the maximum number of blocks that a running request needs for its next step."""
        scheduler = self._scheduler
        computed = request.num_computed_tokens
        tokens = min(request.num_tokens_with_spec + request.num_output_placeholders - computed, self.max_chunk)
        if scheduler.need_mamba_block_aligned_split:
            tokens = scheduler._mamba_block_aligned_split(request, tokens)
        return self.of_running(request, tokens)

    def tokens_within(self, request: Request, blocks: int) -> int:
        """Returns how many prompt tokens a running request can compute next with at most this many more blocks."""
        tokens = min(int(request.num_tokens - request.num_computed_tokens), self.max_chunk)
        return bisect_right(range(1, tokens + 1), blocks, key=lambda count: self.of_running(request, count))

    def of_running(self, request: Request, num_new_tokens: int) -> int:
        """Returns how many blocks a running request needs to compute this many more tokens and draft after them."""
        blocks: int = self._manager.blocks_to_continue(request, num_new_tokens)
        return blocks

    def _at_most(self, tokens: int) -> int:
        tokens = int(tokens)
        if len(self._groups) == 1:
            return self._groups[0].at_most(tokens)
        return sum(group.at_most(tokens) for group in self._groups)
