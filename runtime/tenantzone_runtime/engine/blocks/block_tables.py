"""Predicts how vLLM fills the block tables of requests, for each KV cache group.

Layers with the same kind of attention share a group, and a request has one block table per group. In most steps, a
generating request only writes into blocks that it already holds. This module detects these steps, so that the KV cache
manager can skip vLLM's slower code, which would change nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, NamedTuple

from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator, KVCacheCoordinator
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.single_type_kv_cache_manager import (
    ChunkedLocalAttentionManager,
    FullAttentionManager,
    MambaManager,
    SingleTypeKVCacheManager,
    SlidingWindowManager,
)
from vllm.v1.request import Request

_KNOWN: Final = (FullAttentionManager, SlidingWindowManager, ChunkedLocalAttentionManager, MambaManager)
"""Managers of layers whose block tables get one entry per ``block_size`` tokens, and keep it if its block is freed."""
_AS_IT_IS: Final = nullcontext()


class _Group(NamedTuple):
    blocks: Mapping[str, list[KVCacheBlock]]
    """Block tables by request id."""
    block_tokens: int
    spare: int
    """Number of blocks at the end of each table that contain states of drafted tokens instead of tokens."""
    indexed: Mapping[str, int] | None
    """Number of full blocks considered for the prefix index, by request id. None if the group has no prefix index."""
    unit: int
    """Interval in tokens at which blocks enter the prefix index."""
    unit_blocks: int


class BlockTables:
    """The block tables of all requests of an engine.

    Args:
        coordinator: vLLM's coordinator of the groups. If a group's manager is not in ``_KNOWN``, nothing is predicted.
    """

    def __init__(self, coordinator: KVCacheCoordinator) -> None:
        managers = coordinator.single_type_managers
        is_known = all(type(caches) in _KNOWN for caches in managers)
        self._groups = tuple(_group(coordinator, caches) for caches in managers) if is_known else ()
        self._is_known = bool(self._groups)
        self._slots = tuple((each.blocks, each.block_tokens, each.spare) for each in self._groups)
        """The fields of ``_groups`` that are read for each running request in each step."""
        states = [caches for caches in managers if isinstance(caches, MambaManager)]
        aligned = [caches for caches in states if caches.mamba_cache_mode == "align"]
        self._states = tuple(states)
        self._aligned = tuple(aligned)
        self._pending: tuple[Mapping[str, Any], ...] = tuple(
            pending for caches in aligned for pending in (caches._partial_hit_reqs, caches._checkpoints)
        )
        """Maps whose keys are the ids of requests for which vLLM must do more than write the next tokens."""
        self._indexes_ends = any(
            caches.supports_fine_grained_hash_lookup and caches.block_size != caches.block_pool.hash_block_size
            for caches in managers
        )
        """Whether the prefix index also contains prompts that end within a block."""
        self.forgetful: tuple[SingleTypeKVCacheManager, ...] = tuple(
            caches for caches in managers if type(caches) is not FullAttentionManager
        )
        """Managers of layers without full attention. These layers have a limited window or keep only the last state."""
        self._forgets = tuple((caches, _forgets_from_the_beginning(caches)) for caches in self.forgetful)

    def writes_on(self, request: Request, tokens: int) -> bool:
        """Returns True only if a request can reach a number of tokens without a new block and without filling a block.

        Args:
            request: a running request.
            tokens: the total number of tokens, including slots for drafts.
        """
        if self._indexes_ends and request.num_computed_tokens < request.num_prompt_tokens:
            return False
        request_id = request.request_id
        for blocks, block_tokens, spare, indexed, unit, unit_blocks in self._groups:
            if tokens >= (len(blocks[request_id]) - spare) * block_tokens:
                return False
            if indexed is not None and tokens // unit * unit_blocks > indexed.get(request_id, -1):
                return False
        return self._is_known and not (self._pending and self._is_pending(request_id))

    def let_go_of_skipped(self, request: Request, processed: int) -> None:
        """Make vLLM free the blocks that a request no longer attends to, unless they are already free.

        Args:
            request: a running request.
            processed: the number of tokens computed by completed steps.
        """
        request_id = request.request_id
        for caches, is_from_the_beginning in self._forgets:
            if is_from_the_beginning:
                skipped = caches.get_num_skipped_tokens(processed) // caches.block_size
                blocks = caches.req_to_blocks.get(request_id, ())
                if skipped <= 0 or (skipped <= len(blocks) and blocks[skipped - 1].is_null):
                    continue
            caches.remove_skipped_blocks(request_id, processed, request.num_prompt_tokens)

    def indexes_nothing(self, request: Request, tokens: int) -> bool:
        """Returns True only if no further block of a request enters the prefix index at this many computed tokens."""
        if self._indexes_ends and tokens <= request.num_prompt_tokens:
            return False
        request_id = request.request_id
        for _, _, _, indexed, unit, unit_blocks in self._groups:
            if indexed is not None and tokens // unit * unit_blocks > indexed.get(request_id, -1):
                return False
        return self._is_known and not (self._pending and self._is_pending(request_id))

    def have_slots(self, request_id: str, tokens: int) -> bool:
        """Returns True only if a request certainly has blocks for this many tokens in all groups."""
        for blocks, block_tokens, spare in self._slots:
            if tokens > (len(blocks[request_id]) - spare) * block_tokens:
                return False
        return self._is_known and not (self._pending and self._is_pending(request_id))

    def may_lack_blocks(self, requests: Sequence[Request], lookahead: int) -> Sequence[Request]:
        """Returns the requests that may lack blocks for their next generated token and its drafts.

        Args:
            requests: running requests.
            lookahead: the number of slots in addition to the next token and its drafts.
        """
        if len(self._slots) != 1 or self._pending:
            return requests
        # Written as one expression for speed, because every running request is checked before every step.
        (blocks, block_tokens, spare), beyond = self._slots[0], 1 + lookahead
        return [
            request
            for request in requests
            if request.num_computed_tokens + len(request.spec_token_ids) + beyond
            > (len(blocks[request.request_id]) - spare) * block_tokens
        ]

    def blocks_to_grow(self, request_id: str, tokens: int) -> int | None:
        """Returns how many more blocks a running request needs for a number of tokens.

        Returns None if some layers do not have full attention: the lengths of their tables do not show the need.
        """
        if self.forgetful or not self._slots:
            return None
        return sum(
            max(0, -(-tokens // block_tokens) - len(blocks[request_id])) for blocks, block_tokens, _ in self._slots
        )

    def _is_pending(self, request_id: str) -> bool:
        return any(request_id in pending for pending in self._pending)

    def begin_with_this_step(self, hits: Sequence[Sequence[KVCacheBlock]]) -> bool:
        """Returns whether a hit is a state that the current step computes, so that vLLM defers the request.

        Args:
            hits: the cached blocks of the request's prefix, by group.
        """
        return any(
            found[-1].block_hash in caches.cached_blocks_this_step
            for caches in self._states
            if (found := hits[caches.kv_cache_group_id])
        )

    @property
    def landing_blocks(self) -> int:
        """Number of blocks for copies of states that a loading request needs, in addition to blocks of loaded tokens.

        Models that keep checkpoints of a prompt's states within a step need one more block per group.
        """
        return sum(1 + int(caches.has_prefill_checkpoint_blocks) for caches in self._aligned)

    def without_skipped_states(self, hits: KVCacheBlocks, computed_tokens: int, null: KVCacheBlock) -> KVCacheBlocks:
        """Returns the hits without states that the request does not need, because vLLM would count their blocks.

        Args:
            hits: the cached blocks of the request's prefix, by group.
            computed_tokens: the number of tokens that the request has after its load.
            null: vLLM's null block, which replaces unneeded blocks.
        """
        groups = list(hits.blocks)
        for caches in self._aligned:
            found = groups[caches.kv_cache_group_id]
            skipped = caches.get_num_skipped_tokens(computed_tokens) // caches.block_size
            groups[caches.kv_cache_group_id] = [*[null] * min(skipped, len(found)), *found[skipped:]]
        return KVCacheBlocks(tuple(groups))

    @property
    def have_states(self) -> bool:
        """Whether some layers keep states instead of the keys and values of each token."""
        return bool(self._states)

    def unchanged(self, request_id: str) -> AbstractContextManager[None]:
        """Returns a context manager in which vLLM can count a request's blocks. At its end, vLLM's state is restored.

        While vLLM counts, it also records where to keep states. For a request that must not begin in this step, vLLM
        would return more blocks than exist. The hashes by which vLLM recognizes such requests are hidden meanwhile.
        """
        return self._keep_states(request_id) if self._states else _AS_IT_IS

    @contextmanager
    def _keep_states(self, request_id: str) -> Iterator[None]:
        in_step = [caches.cached_blocks_this_step for caches in self._states]
        is_known = [request_id in caches.req_to_blocks for caches in self._states]
        checkpoints = [caches._checkpoints.get(request_id) for caches in self._aligned]
        for caches in self._states:
            caches.cached_blocks_this_step = set()
        try:
            yield
        finally:
            for caches, hashes, known in zip(self._states, in_step, is_known, strict=True):
                caches.cached_blocks_this_step = hashes
                if not known:
                    caches.req_to_blocks.pop(request_id, None)
            for caches, checkpoint in zip(self._aligned, checkpoints, strict=True):
                caches._checkpoints.pop(request_id, None)
                if checkpoint is not None:
                    caches._checkpoints[request_id] = checkpoint


def _forgets_from_the_beginning(caches: SingleTypeKVCacheManager) -> bool:
    """Returns whether vLLM frees the blocks of a table in order, so that all blocks before a freed block are free."""
    return type(caches).remove_skipped_blocks is SingleTypeKVCacheManager.remove_skipped_blocks


def _group(coordinator: KVCacheCoordinator, caches: SingleTypeKVCacheManager) -> _Group:
    block_tokens = unit = int(caches.block_size)
    finds_parts = caches.use_eagle or coordinator.enable_partial_hash_hits
    if isinstance(coordinator, HybridKVCacheCoordinator) and not finds_parts:
        # vLLM indexes only positions at which all groups can have hits.
        unit = int(coordinator.scheduler_block_size)
    is_indexed = caches.enable_caching and caches.kv_cache_spec.prefix_cacheable
    return _Group(
        caches.req_to_blocks,
        block_tokens,
        caches.num_speculative_blocks if isinstance(caches, MambaManager) else 0,
        caches.num_cached_block if is_indexed else None,
        unit,
        unit // block_tokens,
    )
