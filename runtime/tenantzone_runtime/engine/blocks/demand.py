"""Computes the number of blocks that a request needs on admission, in its next step and at its peak, by vLLM's rules.

A model has one or several KV cache groups, and the layers of a group share block tables. All groups take their blocks
from one pool, so a request's demand is the sum of the demands of all groups.
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
    """Number of blocks for states of drafted tokens and for copies, in addition to the blocks of tokens."""
    most: int | None
    """Maximum number of blocks of a request of any length, or None if the number grows with the length."""

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
        """Number of token slots that a step needs to verify and to draft tokens, in addition to the next token."""
        steps = int(scheduler.vllm_config.max_concurrent_batches)
        self._beyond = self.drafting + int(scheduler.num_spec_tokens) * (steps - 1)
        """Maximum number of slots that a request uses beyond its last token, if no draft in flight is accepted."""
        managers = self._manager.coordinator.single_type_managers
        self._groups = [self._group(caches, steps) for caches in managers]
        self._has_caps = any(caches.max_admission_blocks_per_request is not None for caches in managers)
        self._lengths: dict[tuple[int, int], int] = {}

    def _group(self, caches: SingleTypeKVCacheManager, steps: int) -> _Group:
        block_tokens, most = int(caches.block_size), caches.max_admission_blocks_per_request
        coordinator = self._manager.coordinator
        # If a hit ends within a cached block, vLLM copies that block to another block.
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
            # If tokens were loaded from a tier, a checkpoint of their state takes another block.
            additional = drafted + copied + (checkpoints if self._scheduler.connector is not None else 0)
            return _Group(block_tokens, additional, 1 + steps * (in_step + checkpoints) + drafted + copied)
        return _Group(block_tokens, drafted, None)

    @property
    def max_chunk(self) -> int:
        """Maximum number of tokens of one request that a step computes."""
        scheduler = self._scheduler
        budget = int(scheduler.max_num_scheduled_tokens)
        threshold = int(scheduler.scheduler_config.long_prefill_token_threshold)
        # Counts requests only if their number matters, because callers read this several times per prompt and step.
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
        """Returns an upper bound of ``to_admit``. It is cheap to compute, because it ignores cached prefixes."""
        return self._at_most(min(request.num_tokens + self.drafting, self._scheduler.max_model_len))

    def begun_by(self, tokens: int) -> int:
        """Returns the maximum number of new blocks that a request needs for this many further tokens."""
        return self._at_most(tokens)

    def to_admit(self, request: Request) -> int:
        """Returns how many blocks, in addition to prefix hits, must be available to admit a request.

        They suffice for the whole prompt and drafts, even if vLLM is configured to require only the blocks of the first
        chunk. Otherwise, admitted requests might be unable to continue, while other requests wait for their blocks.
        """
        scheduler = self._scheduler
        blocks = self._to_compute(request)
        if scheduler.connector is None or not self._manager.landing_blocks:
            return blocks
        # If the engine loads part of the prompt from a tier, the request also takes the landing blocks.
        return max(blocks, min(blocks + self._manager.landing_blocks, self.at_most(request)))

    def _to_compute(self, request: Request) -> int:
        scheduler = self._scheduler
        computed, hit_tokens, _ = self._manager.look_up(request)
        whole = min(int(request.num_tokens) + int(scheduler.num_spec_tokens), scheduler.max_model_len)
        blocks = self._to_begin(request, computed.blocks, hit_tokens, whole, is_capped=True)
        if not self._has_caps:
            return blocks
        # vLLM makes a second check, for the first chunk and without the cap.
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
        """Returns how many prompt tokens a running request can compute next with at most this many new blocks."""
        tokens = min(int(request.num_tokens - request.num_computed_tokens), self.max_chunk)
        return bisect_right(range(1, tokens + 1), blocks, key=lambda count: self.of_running(request, count))

    def of_running(self, request: Request, num_new_tokens: int) -> int:
        """Returns how many new blocks a running request needs to compute this many more tokens and their drafts."""
        blocks: int = self._manager.blocks_to_continue(request, num_new_tokens)
        return blocks

    def _at_most(self, tokens: int) -> int:
        tokens = int(tokens)
        if len(self._groups) == 1:
            return self._groups[0].at_most(tokens)
        return sum(group.at_most(tokens) for group in self._groups)
