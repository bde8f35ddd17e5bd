"""How many blocks a request asks for, now, in its next step, and at its longest, by vLLM's own reckoning.

A model has one or several groups of KV caches, whose layers share block tables. All groups take their blocks from one
pool, and what a request asks for is the sum over them.
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
    """Blocks beside those of tokens: states of what is drafted."""
    most: int | None
    """Blocks that a request uses at most however long it is, where its layers see back so far and no farther."""

    def at_most(self, tokens: int) -> int:
        """Blocks that a request of so many tokens uses of this group when it uses the most."""
        blocks = -(-tokens // self.block_tokens) + self.spare
        return blocks if self.most is None else min(blocks, self.most)


class Demand:
    """The blocks that vLLM's own checks will ask for, known before they ask.

    Args:
        scheduler: whose requests.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._manager = scheduler.kv_cache_manager
        self.drafting = int(scheduler.num_spec_tokens) + int(scheduler.num_lookahead_tokens)
        """Slots that a step needs beyond the next token of a request: for what was drafted, and to draft in."""
        steps = int(scheduler.vllm_config.max_concurrent_batches)
        self._beyond = self.drafting + int(scheduler.num_spec_tokens) * (steps - 1)
        """Slots that a request may use beyond its last token: each step in flight may bring none of its drafts."""
        managers = self._manager.coordinator.single_type_managers
        self._groups = [self._group(caches, steps) for caches in managers]
        self._has_caps = any(caches.max_admission_blocks_per_request is not None for caches in managers)
        self._lengths: dict[tuple[int, int], int] = {}

    def _group(self, caches: SingleTypeKVCacheManager, steps: int) -> _Group:
        block_tokens, most = int(caches.block_size), caches.max_admission_blocks_per_request
        coordinator = self._manager.coordinator
        # What is found up to the midst of a block is copied, and takes a block of its own.
        copied = int(coordinator.enable_partial_hash_hits and block_tokens > coordinator.hash_block_size)
        if not isinstance(caches, MambaManager):
            # vLLM's cap leaves out what a step needs to draft.
            capped = None if most is None else int(most) + copied - (-self.drafting // block_tokens)
            return _Group(block_tokens, copied, capped)
        drafted = int(caches.num_speculative_blocks)
        if caches.mamba_cache_mode == "align":
            # The last state that is sure, those of the steps in flight, and copies of states in the midst of blocks.
            in_step = -(-(1 + int(self._scheduler.num_spec_tokens)) // block_tokens)
            checkpoints = int(caches.has_prefill_checkpoint_blocks)
            copied = int(coordinator.enable_partial_hash_hits)
            # Behind what is loaded, however little it is, a checkpoint takes a block beside the state's.
            beside = drafted + copied + (checkpoints if self._scheduler.connector is not None else 0)
            return _Group(block_tokens, beside, 1 + steps * (in_step + checkpoints) + drafted + copied)
        return _Group(block_tokens, drafted, None)

    @property
    def max_chunk(self) -> int:
        """The most tokens of one request that a step computes."""
        scheduler = self._scheduler
        budget = int(scheduler.max_num_scheduled_tokens)
        threshold = int(scheduler.scheduler_config.long_prefill_token_threshold)
        # Asked several times for each prompt in each step: requests are counted only where their number matters.
        if threshold <= 0 or (requests := sum(scheduler.get_request_counts())) <= 1:
            return budget
        if scheduler.adaptive_long_prefill_threshold:
            threshold = max(threshold, budget // requests)
        return min(budget, threshold)

    def peak(self, tokens: int) -> int:
        """Blocks that a request of so many tokens uses when it uses the most."""
        return self._at_most(min(tokens + self._beyond, self._scheduler.max_model_len))

    def tokens_in(self, blocks: int) -> int:
        """How long a request may become that uses so many blocks at the most, with all that it computes for nothing.

        It is more than the model takes where these blocks are enough for that.
        """
        key = blocks, int(self._scheduler.max_model_len)
        if key not in self._lengths:
            self._lengths[key] = bisect_right(range(1, key[1] + 2), blocks, key=self.peak)
        return self._lengths[key]

    def at_most(self, request: Request) -> int:
        """Blocks to admit a request if none of its prefix is cached: cheap to tell, and no less than ``to_admit``."""
        return self._at_most(min(request.num_tokens + self.drafting, self._scheduler.max_model_len))

    def begun_by(self, tokens: int) -> int:
        """Blocks that a request begins with so many further tokens, at the most."""
        return self._at_most(tokens)

    def to_admit(self, request: Request) -> int:
        """Blocks that a request puts to use on admission, after prefix hits: for its whole prompt, and to draft in.

        vLLM can be told to ask for the first chunk only. With zones that would admit requests which can't go on, and
        whose blocks others wait for meanwhile.
        """
        scheduler = self._scheduler
        blocks = self._to_compute(request)
        if scheduler.connector is None or not self._manager.landing_blocks:
            return blocks
        # If some of it is in a tier, it is loaded, and takes these beside the blocks of what is loaded.
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
        """Blocks that a running request asks for in its next step, at the most."""
        scheduler = self._scheduler
        computed = request.num_computed_tokens
        tokens = min(request.num_tokens_with_spec + request.num_output_placeholders - computed, self.max_chunk)
        if scheduler.need_mamba_block_aligned_split:
            tokens = scheduler._mamba_block_aligned_split(request, tokens)
        return self.of_running(request, tokens)

    def tokens_within(self, request: Request, blocks: int) -> int:
        """Tokens of a running request's prompt that its next step could compute with so many further blocks at most."""
        tokens = min(int(request.num_tokens - request.num_computed_tokens), self.max_chunk)
        return bisect_right(range(1, tokens + 1), blocks, key=lambda count: self.of_running(request, count))

    def of_running(self, request: Request, num_new_tokens: int) -> int:
        """Blocks that a running request asks for to compute so many tokens more, and to draft others after them."""
        blocks: int = self._manager.blocks_to_continue(request, num_new_tokens)
        return blocks

    def _at_most(self, tokens: int) -> int:
        tokens = int(tokens)
        if len(self._groups) == 1:
            return self._groups[0].at_most(tokens)
        return sum(group.at_most(tokens) for group in self._groups)
