"""How many blocks requests need, computed from the kinds of a model's layers and not by the tested code."""

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import MambaManager
from vllm.v1.request import Request

from hack.harness.scheduler import BLOCK_TOKENS


def slots_to_admit(scheduler: Scheduler, request: Request) -> int:
    """The slots that the request needs to be admitted, those for drafts included."""
    tokens = request.num_tokens + scheduler.num_spec_tokens + scheduler.num_lookahead_tokens
    return min(tokens, scheduler.max_model_len)


def slots_at_most(scheduler: Scheduler, request: Request) -> int:
    """The slots at its longest, where each step in flight drafts and all drafts are wrong."""
    drafted = scheduler.num_spec_tokens * (2 if scheduler.scheduler_config.async_scheduling else 1)
    tokens = request.num_prompt_tokens + request.max_tokens + drafted + scheduler.num_lookahead_tokens
    return min(tokens, scheduler.max_model_len)


def blocks_at_most(scheduler: Scheduler, slots: int) -> int:
    """Blocks of a request with `slots` slots, in all groups; with a window it may be less."""
    blocks = 0
    for caches in scheduler.kv_cache_manager.coordinator.single_type_managers:
        of_tokens = _blocks(slots, caches.block_size)
        if isinstance(caches, MambaManager):
            of_tokens += caches.num_speculative_blocks
            if caches.mamba_cache_mode == "align":
                steps = scheduler.vllm_config.max_concurrent_batches
                in_step = _blocks(1 + scheduler.num_spec_tokens, caches.block_size)
                of_tokens = 1 + min(of_tokens, 1 + steps * in_step + caches.num_speculative_blocks)
        blocks += of_tokens
    return blocks


def growth(scheduler: Scheduler, request: Request, tokens: int) -> int:
    """Blocks that a running request needs to compute `tokens` more tokens, in all groups."""
    name, end = request.request_id, request.num_computed_tokens + tokens
    slots = min(end + scheduler.num_lookahead_tokens, scheduler.max_model_len)
    blocks = 0
    for caches in scheduler.kv_cache_manager.coordinator.single_type_managers:
        held = len(caches.req_to_blocks[name])
        if not isinstance(caches, MambaManager):
            blocks += max(0, _blocks(slots, caches.block_size) - held)
        elif caches.mamba_cache_mode != "align":
            blocks += max(0, _blocks(slots, caches.block_size) + caches.num_speculative_blocks - held)
        else:
            # One for the state at the end of the step, and one for a copy of the state that identifies the prompt's
            # end.
            is_copied = name in caches._partial_hit_reqs
            needed = max(0, _blocks(end, caches.block_size) + caches.num_speculative_blocks - held)
            blocks += min(1, needed) + is_copied
    return blocks


def longest(capacity: int, kinds: tuple[str, ...], drafted: int, steps: int) -> int:
    """Tokens of the longest request that fits into a pool, for a model with such layers; a multiple of all block sizes.

    Args:
        capacity: blocks of the pool.
        kinds: kinds of the layers.
        drafted: tokens drafted at a time.
        steps: steps that may be in flight.
    """
    kept = sum(3 + drafted + steps for kind in kinds if kind.startswith("mamba"))
    growing = sum(not kind.endswith(("none", "align", "align wide")) for kind in kinds) or 1
    return (capacity - kept) // growing // 2 * 2 * BLOCK_TOKENS


def _blocks(tokens: int, block_tokens: int) -> int:
    return -(-tokens // block_tokens)
