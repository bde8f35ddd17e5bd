"""Models with several groups of KV caches: a zone owns blocks of all groups, and a request costs their sum."""

from collections import Counter, deque
from itertools import chain

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hack.harness.kv_caches import KINDS
from hack.harness.scheduler import (
    BLOCK_TOKENS,
    Driver,
    make_scheduler,
    prompt,
    vllm_config,
    with_drafts,
    with_flags,
)
from tenantzone_contract.zone_config.config import ConfigError, ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle, Retention
from tests.engine.test_refused import refusal

WINDOW = 4 * BLOCK_TOKENS
SEVERAL = [kinds for kinds in KINDS if len(kinds) > 1]
CACHING = [kinds for kinds in SEVERAL if "mamba none" not in kinds]
ALIGNED = [kinds for kinds in SEVERAL if any("align" in kind for kind in kinds)]
DRAFTING = [None, ("ngram", 3), ("eagle", 3), ("eagle", 20)]
ids = {"ids": "+".join}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=8 * BLOCK_TOKENS)


@pytest.fixture(scope="module")
def new_engine(config):
    """Not the config itself: Hypothesis prints the arguments of a test, and can't print that."""
    return lambda kinds, **flags: engine(config, kinds, **flags)


def engine(config, kinds, *, capacity=200, drafting=None, ahead=0) -> Driver:
    """``ahead``: steps scheduled before the one in the model ends."""
    config = with_flags(config, async_scheduling=ahead > 0)
    if drafting is not None:
        config = with_drafts(config, *drafting)
    return Driver(make_scheduler(config, capacity, window=WINDOW, kinds=kinds))


def goes(kinds, drafting) -> bool:
    """Whether vLLM drafts this way for the kinds of layers."""
    return "chunks" not in kinds or drafting is None or drafting[0] != "eagle"


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def run(driver: Driver, ahead: int = 0):
    """Yields after each half of a step until nothing is left to do."""
    in_the_model, steps = deque(), 0
    while driver.scheduler.has_unfinished_requests() or in_the_model:
        steps += 1
        assert steps < 2000, "requests are left"
        if driver.scheduler.has_unfinished_requests():
            in_the_model.append(driver.schedule())
        driver.check()
        yield
        if len(in_the_model) > ahead or not driver.scheduler.has_unfinished_requests():
            output, result = in_the_model.popleft()
            driver.update(output, result)
            if not ahead:
                driver.draft(output)
        driver.check()
        yield


def held(driver: Driver, request) -> list[int]:
    tables = driver.scheduler.kv_cache_manager.get_blocks(request.request_id).blocks
    return [block.block_id for block in chain.from_iterable(tables) if not block.is_null]


class Asked:
    """Compares the predicted blocks with those that vLLM takes, whenever it is about to take blocks for a request.

    Args:
        driver: the engine's driver.
    """

    def __init__(self, driver: Driver) -> None:
        self._scheduler = driver.scheduler
        self._manager, self._pool = driver.scheduler.kv_cache_manager, driver.scheduler.block_pool
        self._demand = driver.scheduler._demand
        self._allocate_slots, self._new, self._touch = (
            self._manager.allocate_slots,
            self._pool.get_new_blocks,
            self._pool.touch,
        )
        self._manager.allocate_slots = self.allocate_slots
        self._pool.get_new_blocks, self._pool.touch = self.get_new_blocks, self.touch
        self.taken = 0
        self.times = Counter()

    def get_new_blocks(self, count):
        self.taken += count
        return self._new(count)

    def touch(self, blocks):
        self.taken += sum(block.ref_cnt == 0 and not block.is_null for block in blocks)
        return self._touch(blocks)

    def allocate_slots(self, request, num_new_tokens, *args, **kwargs):
        runs = request in self._scheduler.running
        if runs:
            self._manager.let_go_of_skipped(request)
            predicted = self._demand.of_running(request, num_new_tokens)
            assert predicted == self._demand.of_running(request, num_new_tokens), "asking changes what is answered"
            has_slots = self._manager.has_slots_for(request, num_new_tokens)
        else:
            predicted, at_most = self._demand.to_admit(request), self._demand.at_most(request)
            assert predicted == self._demand.to_admit(request), "asking changes what is answered"
            assert predicted <= at_most
        self.taken = 0
        blocks = self._allocate_slots(request, num_new_tokens, *args, **kwargs)
        assert blocks is not None
        if runs:
            assert self.taken == predicted
            assert not (has_slots and predicted)
        else:
            assert self.taken <= predicted
        self.times[runs, predicted > 0] += 1
        return blocks


@given(
    kinds=st.sampled_from(SEVERAL),
    drafting=st.sampled_from(DRAFTING),
    sent=st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 16), st.integers(1, 60), st.integers(0, 2), st.integers(0, 9)),
        min_size=1,
        max_size=6,
    ),
    chances=st.lists(st.integers(0, 20), min_size=1),
)
@settings(deadline=None)
def test_predicted_needs_are_what_vllm_takes(new_engine, kinds, drafting, sent, chances):
    """Exact for a running request; on admission at least as much, for the whole prompt. A query changes nothing."""
    assume(goes(kinds, drafting))
    numbers = iter(chances * 1000)
    driver = new_engine(kinds, drafting=drafting)
    driver.drafts = lambda most: min(most, next(numbers))
    driver.declare(zone("acme"))
    asked, to_come, due = Asked(driver), deque(sent), 0
    while to_come or driver.scheduler.has_unfinished_requests():
        while to_come and due <= 0:
            blocks, extra, tokens, seed, due = to_come.popleft()
            driver.send("acme", prompt(blocks, seed=seed, extra=extra), max_tokens=tokens)
        due -= 1
        generating = [each for each in driver.scheduler.running if not each.is_prefill_chunk]
        manager, demand = driver.scheduler.kv_cache_manager, driver.scheduler._demand
        for each in generating:
            tokens = each.num_tokens_with_spec - each.num_computed_tokens
            assert manager.blocks_to_generate(each, demand.max_chunk) == demand.of_running(each, tokens)
        driver.step()
        driver.check()
    assert asked.times[False, True]


@pytest.mark.parametrize("kinds", SEVERAL, **ids)
def test_a_prompt_can_go_on_by_as_many_tokens_as_its_blocks_have_slots_for(config, kinds):
    driver = engine(with_flags(config, max_num_batched_tokens=72), kinds)
    driver.declare(zone("acme"))
    request = driver.send("acme", prompt(10))
    driver.step()
    demand, left = driver.scheduler._demand, 72
    fitting = [demand.tokens_within(request, blocks) for blocks in range(demand.of_running(request, left) + 1)]
    for blocks, tokens in enumerate(fitting):
        assert tokens == 0 or demand.of_running(request, tokens) <= blocks
        assert tokens == left or demand.of_running(request, tokens + 1) > blocks
    assert len(fitting) > 1
    assert fitting[-1] == left


@pytest.mark.parametrize("ahead", [0, 1], ids=["step by step", "asynchronous"])
@pytest.mark.parametrize("drafting", DRAFTING, ids=str)
@pytest.mark.parametrize("kinds", SEVERAL, **ids)
@pytest.mark.shows("several kinds of layers")
def test_a_request_never_uses_more_than_it_was_taken_for(config, kinds, drafting, ahead):
    """With a limit of that many blocks it also ends, at its full length."""
    if not goes(kinds, drafting):
        return
    for blocks, extra, tokens in ((0, 3, 1), (2, 3, 33), (13, 16, 20), (20, 1, 90)):
        driver = engine(config, kinds, drafting=drafting, ahead=ahead)
        driver.drafts = lambda most: 0
        driver.declare(zone("acme"))
        for _ in range(2):
            # The second one finds the blocks that the first one leaves.
            request = driver.send("acme", prompt(blocks, seed=1, extra=extra), max_tokens=tokens)
            assert max(driver.zone("acme").in_use for _ in run(driver, ahead)) <= request.peak
            assert request.num_output_tokens == tokens
        driver = engine(config, kinds, drafting=drafting, ahead=ahead)
        driver.drafts = lambda most: 0
        driver.declare(zone("acme", limit=request.peak))
        for _ in range(2):
            request = driver.send("acme", prompt(blocks, seed=1, extra=extra), max_tokens=tokens)
            assert max(driver.zone("acme").held for _ in run(driver, ahead)) <= request.peak
            assert (request.num_output_tokens, request.num_preemptions) == (tokens, 0)


@pytest.mark.parametrize("kinds", SEVERAL, **ids)
def test_a_request_is_bounded_by_what_its_zone_may_hold_in_all_groups(config, kinds):
    driver = engine(config, kinds)
    driver.declare(zone("acme", limit=24))
    demand = driver.scheduler._demand
    longest = demand.tokens_in(24)
    assert demand.peak(longest) <= 24
    assert longest > driver.scheduler.max_model_len or demand.peak(longest + 1) > 24
    request = driver.send("acme", prompt(1), max_tokens=4000)
    driver.run(4100)
    assert request.num_prompt_tokens + request.num_output_tokens == min(longest, 4000 + request.num_prompt_tokens)
    assert request.num_preemptions == 0
    if longest < 4000:
        too_long = driver.send("acme", prompt(longest // BLOCK_TOKENS + 1))
        driver.run()
        assert "does not fit into the limit" in refusal(driver, too_long).message


@pytest.mark.parametrize("kinds", CACHING, **ids)
@pytest.mark.shows("several kinds of layers")
def test_what_one_tenant_cached_is_found_by_it_in_all_groups_and_by_no_other(config, kinds):
    driver = engine(config, kinds)
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(12, seed=1))
    again = driver.ask("acme", prompt(12, seed=1))
    assert driver.cached_tokens(again) == 12 * BLOCK_TOKENS
    other = driver.ask("burst", prompt(12, seed=1))
    assert driver.cached_tokens(other) == 0


@pytest.mark.parametrize("kinds", CACHING, **ids)
@pytest.mark.shows("several kinds of layers")
def test_what_is_reserved_stays_in_all_groups_whatever_another_tenant_floods(config, kinds):
    """Of layers with a window, only what a prompt's end needs is kept, and that suffices to find the prompt again."""
    driver = engine(config, kinds, capacity=120)
    driver.declare(zone("acme", reserved=60), zone("burst"))
    driver.ask("acme", prompt(12, seed=1))
    kept = set(driver.zone("acme").cached)
    for _ in range(40):
        driver.send("burst", prompt(10), max_tokens=20)
    driver.run(2000)
    assert set(driver.zone("acme").cached) == kept
    assert driver.cached_tokens(driver.ask("acme", prompt(12, seed=1))) == 12 * BLOCK_TOKENS


@pytest.mark.parametrize("kinds", SEVERAL, **ids)
def test_a_flood_leaves_a_zone_what_it_reserved_for_the_sum_over_its_groups(config, kinds):
    """Within its reservation, it gets each block that it asks for within one step, and loses no turn."""
    driver = engine(config, kinds, capacity=160)
    driver.declare(zone("acme", reserved=80), zone("burst"))
    for _ in range(12):
        driver.send("burst", prompt(6), max_tokens=300)
    for _ in range(6):
        driver.step()
    mine = driver.send("acme", prompt(6), max_tokens=60)
    assert mine.peak <= 80
    waited = 0
    while not mine.num_output_tokens:
        driver.step()
        driver.check()
        waited += 1
    assert waited <= 6
    while not mine.is_finished():
        before = mine.num_output_tokens
        driver.step()
        driver.check()
        assert mine.num_output_tokens == before + 1
    assert mine.num_preemptions == 0


@pytest.mark.parametrize("kinds", SEVERAL, **ids)
def test_a_request_that_is_preempted_gives_back_the_blocks_of_all_groups_and_ends_later(config, kinds):
    driver = engine(config, kinds, capacity=100)
    driver.declare(zone("acme", reserved=70), zone("burst"))
    borrower = driver.send("burst", prompt(12), max_tokens=60)
    for _ in range(4):
        driver.step()
    lenders = [driver.send("acme", prompt(14), max_tokens=30) for _ in range(2)]
    driver.run(2000)
    assert borrower.num_output_tokens == 60
    assert {each.num_output_tokens for each in lenders} == {30}
    assert driver.zone("burst").in_use == driver.zone("acme").in_use == 0


@pytest.mark.parametrize("kinds", CACHING, **ids)
def test_a_purge_and_no_store_reach_the_blocks_of_all_groups(config, kinds):
    driver = engine(config, kinds)
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(5, seed=1, extra=9))
    running = driver.send("acme", prompt(6, seed=2, extra=9), max_tokens=40)
    for _ in range(3):
        driver.step()
    driver.declare(zone("acme", purge="one"))
    assert not any(driver.scheduler.block_pool.blocks[each].block_hash for each in held(driver, running))
    assert not driver.zone("acme").cached
    driver.run()
    assert not driver.zone("acme").cached, "what had begun before the purge is kept"
    for seed, blocks in ((1, 5), (2, 6)):
        assert driver.cached_tokens(driver.ask("acme", prompt(blocks, seed=seed, extra=9))) == 0
    driver.declare(zone("acme", purge="one", retention=Retention(no_store=True)))
    driver.ask("acme", prompt(7, seed=3, extra=9), max_tokens=20)
    assert not driver.zone("acme").cached
    pool = driver.scheduler.block_pool
    assert not any(block.block_hash for block in pool.blocks)
    assert not pool.cached_block_hashes_by_block


@pytest.mark.parametrize("kinds", CACHING, **ids)
def test_requests_from_before_the_first_config_keep_what_they_have_in_all_groups(config, kinds):
    driver = engine(config, kinds)
    early = driver.send(None, prompt(9, seed=1, extra=9), max_tokens=30)
    for _ in range(4):
        driver.step()
    blocks = held(driver, early)
    driver.declare(zone("acme", reserved=20))
    assert blocks
    assert {driver.scheduler.block_pool.ledger.owner[each] for each in blocks} == {early.zone}
    driver.run()
    assert early.num_output_tokens == 30
    assert driver.cached_tokens(driver.ask("acme", prompt(9, seed=1, extra=9))) == 0


@pytest.mark.parametrize("kinds", ALIGNED, **ids)
@pytest.mark.parametrize("ahead", [0, 1], ids=["step by step", "asynchronous"])
@pytest.mark.shows("several kinds of layers")
def test_shares_of_a_step_end_where_states_are_kept(config, kinds, ahead):
    """With two tenants' prompts in a step, each chunk ends with a block, or with its prompt."""
    driver = engine(config, kinds, ahead=ahead)
    driver.declare(zone("acme", weight=3), zone("burst"), zone("calm"))
    requests = [driver.send(tenant, prompt(30, extra=5)) for tenant in ("acme", "burst", "calm") for _ in range(2)]
    block = driver.scheduler.cache_config.block_size
    shared = 0
    steps = run(driver, ahead)
    while any(not each.is_finished() for each in requests):
        next(steps)
        at = {each: each.num_computed_tokens for each in requests if each.is_prefill_chunk}
        assert all(computed % BLOCK_TOKENS == 0 for computed in at.values())
        in_prompts = {each.zone for each in driver.scheduler.running if each.is_prefill_chunk}
        shared += len(in_prompts) > 1
        unaligned = [
            each for each, computed in at.items() if computed % block and computed < 30 * BLOCK_TOKENS // block * block
        ]
        assert not unaligned
    assert shared > 1
    assert {driver.finished[each.request_id] for each in requests} == {"length"}


@pytest.mark.parametrize("kinds", [kinds for kinds in CACHING if any("mamba" in kind for kind in kinds)], **ids)
def test_one_whose_state_is_computed_in_this_step_waits_alone(config, kinds):
    """vLLM would stop scanning the queue there; another tenant's request must not be behind it."""
    driver = engine(config, kinds)
    driver.declare(zone("acme"), zone("burst"))
    first = driver.send("acme", prompt(4, seed=1, extra=5))
    second = driver.send("acme", prompt(4, seed=1, extra=5))
    other = driver.send("burst", prompt(1, extra=1))
    scheduled = driver.step()
    assert first.request_id in scheduled
    assert second.request_id not in scheduled
    assert other.request_id in scheduled
    assert driver.zone("acme").wait_reason in (None, "tokens")
    driver.run(10)
    assert driver.cached_tokens(second) == 4 * BLOCK_TOKENS


def test_what_can_not_be_zeroed_is_not_promised(config):
    """On CPUs vLLM zeroes no blocks of layers with a window, and it never zeroes states."""
    for kinds in SEVERAL:
        driver = engine(config, kinds)
        if set(kinds) <= {"full", "wide", "latent"}:
            driver.declare(zone("acme", scrub="OnTransfer"))
            continue
        driver.declare(zone("acme", reserved=10))
        with pytest.raises(
            ConfigError, match=r"zone acme: scrub OnTransfer .* of the kind (SlidingWindow|Chunked|Mamba)"
        ):
            driver.declare(zone("acme", scrub="OnTransfer"))
        assert driver.zone("acme").spec.quota.reserved == 10


@pytest.mark.parametrize("kinds", CACHING, **ids)
def test_an_idle_zone_loses_its_cache_in_all_groups(config, kinds, clock):
    driver = engine(config, kinds)
    driver.declare(zone("acme", idle=Idle(after_seconds=1, evict_after_seconds=5)), zone("burst"))
    driver.ask("acme", prompt(8, seed=1))
    assert driver.zone("acme").cached
    clock.seconds += 10
    driver.scheduler.let_time_pass()
    assert not driver.zone("acme").cached
    assert driver.cached_tokens(driver.ask("acme", prompt(8, seed=1))) == 0
