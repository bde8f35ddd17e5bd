"""Liveness: if no more requests arrive, each request that can end does end.

A request can end if the blocks that it uses at its longest are within its zone's reservation, or within what no other
zone keeps from its zone while quiet. A loan with a time limit is not counted: a request that needs it may have to start
again each time the loan is due. A request that can't end keeps its zone from becoming quiet, so its client gives up
first.

The bound, in steps that compute something: each request could be served alone, one after another. Alone, it takes the
steps of its prompt, one step for each token of its answer, and two more (one in flight when the last token comes, one
in which it is only admitted). A preemption loses work, and each request that ends may have cost each other one the
computation of its tokens so far.

The bound, in time during which nothing is computed or copied: requests can wait only for zones to become quiet and for
graces to end, and both have run at least since the last step.
"""

import gc
import sys
from typing import Any

from vllm.v1.request import Request

from tenantzone_contract.zone_config.zone_terms import LatencyTargets
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS
from tenantzone_runtime.zones.tokens.deficits import CHUNK
from tests.engine.histories.engine import Engine
from tests.engine.histories.reckoning import blocks_at_most, slots_at_most
from tests.engine.histories.snapshot import zone_of

LOOKS = 16
"""How many times, during the longest wait, the test checks whether a step computes something."""


def drain(engine: Engine) -> None:
    """Lets every request end, and checks that each does so within the bound and leaves nothing behind."""
    engine.resume()
    for compilation in list(engine.compilations):
        engine.finish(compilation)
    engine.abort([request for request in _unfinished(engine) if not _can_end(engine, request)])
    requests = _unfinished(engine)
    max_steps, max_wait = _steps_bound(engine, requests), _longest_wait(engine)
    steps, computed = 0, engine.clock.seconds
    while not engine.is_empty:
        if engine.turn():
            steps += 1
            engine.pass_time(engine.step_seconds)
            computed = engine.clock.seconds
        elif engine.is_computing or engine.is_copying:
            engine.pass_time(engine.flags.step_seconds)
            computed = engine.clock.seconds
        else:
            waited = engine.clock.seconds - computed
            assert waited <= max_wait, f"stuck: {_describe(engine)}"
            engine.pass_time(max_wait / LOOKS)
        assert steps <= max_steps, f"{steps} steps, and not at an end: {_describe(engine)}"
    for request in requests:
        assert request.is_finished()
    engine.invariants.each_token_is_counted_once()
    _nothing_is_left(engine)


def _unfinished(engine: Engine) -> list[Request]:
    return [request for request in engine.requests if not request.is_finished()]


def _peak(engine: Engine, request: Request) -> int:
    """Blocks that the request uses at its longest; with a window it may be less."""
    return blocks_at_most(engine.scheduler, slots_at_most(engine.scheduler, request))


def _can_end(engine: Engine, request: Request) -> bool:
    zone, peak = zone_of(request), _peak(engine, request)
    if zone is None and not engine.flags.whole_prompts:
        # Without zones, vLLM admits requests that it has no room to continue, and they may preempt each other for ever.
        return False
    scheduler = engine.scheduler
    if zone is None and scheduler.need_mamba_block_aligned_split and scheduler.num_prefill_lookahead > 1:
        # Without zones, vLLM never finishes a prompt where a state is kept too close to its end for several modules.
        return False
    if zone is not None:
        if peak > zone.spec.quota.limit and not engine.invariants.was_caught(request):
            return False
        if peak <= zone.spec.quota.reserved:
            return True
    others = [other for other in engine.scheduler.block_pool.ledger.zones.values() if other is not zone]
    return peak <= engine.flags.capacity - sum(_kept_from(engine, zone, other) for other in others)


def _kept_from(engine: Engine, borrower: Zone | None, lender: Zone) -> int:
    """Blocks of its reservation that a quiet zone keeps from a borrower."""
    quota = lender.spec.quota
    priority = 0 if borrower is None else borrower.spec.priority
    declared = {zone.tenant: zone for zone in engine.configs[-1].zones}.get(lender.spec.tenant)
    if declared is None:
        return quota.reserved
    lending = declared.lending
    lends = lending.borrowers == "AnyPriority" or priority >= lender.spec.priority
    return quota.reserved - quota.lendable if lends and lending.max_loan_seconds is None else quota.reserved


def _steps_bound(engine: Engine, requests: list[Request]) -> int:
    alone = lost = 0
    for request in requests:
        tokens = min(request.num_prompt_tokens + request.max_tokens, engine.scheduler.max_model_len)
        answer = tokens - request.num_tokens
        prefill = -(-tokens // min(_tokens_of_a_step(engine), engine.flags.long_prefill or sys.maxsize))
        if engine.scheduler.need_mamba_block_aligned_split:
            # A chunk ends with a block where one fits into a step, and at up to three further places.
            prefill = 2 * prefill + 3
        # Before each image a step may end because the encoder has no room.
        alone += prefill + len(request.mm_features) + answer + 2
        lost += prefill * len(requests)
        if engine.flags.adapters is not None:
            # An adapter's turn with its slot begins by computing what its requests had lost.
            lost += prefill * (1 + (prefill + answer) // TURN_STEPS)
    return alone + lost + 2


def _tokens_of_a_step(engine: Engine) -> int:
    """Prompt tokens in a step, at least: if no other request is computed, a latency target leaves others a chunk."""
    budget = engine.flags.batched_tokens
    targets = [zone.latency for config in engine.configs for zone in config.zones]
    return budget if all(each == LatencyTargets() for each in targets) else max(1, min(CHUNK, budget // 8))


def _longest_wait(engine: Engine) -> float:
    zones = [zone for config in engine.configs for zone in config.zones]
    quiet = [zone.idle.after_seconds for zone in zones]
    quiet += [config.pool.unknown_tenants.template.idle.after_seconds for config in engine.configs]
    graces = [zone.lending.grace_seconds for zone in zones]
    return max(quiet, default=0.0) + max(graces, default=0.0) + 1.0


def _describe(engine: Engine) -> str:
    scheduler = engine.scheduler
    left = [
        f"{name} {request.status.name} {request.num_computed_tokens}/{request.num_tokens} of at most "
        f"{_peak(engine, request)} blocks, preempted {request.num_preemptions} times"
        for name, request in scheduler.requests.items()
    ]
    zones = [
        f"{zone.spec.tenant}: {zone.in_use} in use, {len(zone.cached)} cached, quota {zone.spec.quota}, "
        f"{'quiet' if zone.quiet else zone.state}, waits: {zone.wait_reason}, overdue {zone.overdue}"
        for zone in scheduler.block_pool.ledger.zones.values()
    ]
    free = scheduler.block_pool.free_block_queue.num_free_blocks
    return "\n  ".join([f"{free} of {engine.flags.capacity} blocks free", *left[:20], *zones])


def _nothing_is_left(engine: Engine) -> None:
    scheduler, pool = engine.scheduler, engine.scheduler.block_pool
    assert not scheduler.running
    assert not list(scheduler.waiting)
    assert scheduler.get_num_unfinished_requests() == 0
    for left in ("kv_holding_waiting", "deferred_waiting", "grammar_compile_error_reqs", "_inflight_prefills"):
        assert not getattr(scheduler, left), left
    for zone in pool.ledger.zones.values():
        assert (zone.in_use, zone.requests, zone.wait_reason) == (0, 0, None)
    assert pool.free_block_queue.num_free_blocks + pool.ledger.cached_blocks == pool.capacity, "blocks are lost"
    for caches in scheduler.kv_cache_manager.coordinator.single_type_managers:
        assert not caches.req_to_blocks
        assert not caches.num_cached_block
    encodings = scheduler.encoder_cache_manager
    assert encodings.freeable.keys() == encodings.cached.keys(), "an image is in use although no request is left"
    assert not encodings._doomed
    assert not _remembered_by(scheduler), "something of ours refers to requests that have ended"


def _remembered_by(scheduler: Any) -> list[Request]:
    """Requests that can be reached from the scheduler through our objects and Python's own containers."""
    known: set[int] = set()
    requests: list[Request] = []
    to_follow = list(vars(scheduler).values())
    while to_follow:
        each = to_follow.pop()
        if id(each) in known:
            continue
        known.add(id(each))
        if isinstance(each, Request):
            requests.append(each)
        elif isinstance(each, dict | list | tuple | set) or type(each).__module__.startswith("tenantzone_runtime"):
            to_follow += gc.get_referents(each)
    return requests
