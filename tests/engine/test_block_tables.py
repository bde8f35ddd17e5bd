"""Results computed from the lengths of block tables equal vLLM's own."""

from copy import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.harness.scheduler import (
    BLOCK_TOKENS,
    Driver,
    make_scheduler,
    vllm_config,
    with_drafts,
    with_flags,
    without_prefix_caching,
)
from tenantzone_contract.zone_config.config import ZoneConfig

KINDS = [(), ("full", "window"), ("full", "mamba align")]
DRAFTING = [None, ("ngram", 3), ("draft_model", 1), ("eagle", 3), ("mtp", 2), ("eagle", 20)]
REQUESTS = st.lists(
    st.tuples(st.integers(1, 4 * BLOCK_TOKENS + 1), st.integers(1, 2 * BLOCK_TOKENS), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def new_engine(tmp_path_factory):
    """Not the config itself: Hypothesis prints the arguments of a test, and can't print that."""
    config = vllm_config(tmp_path_factory.mktemp("model"), sequences=16, max_batched_tokens=3 * BLOCK_TOKENS)
    return lambda *arguments: engine(config, *arguments)


def engine(config, kinds, drafting, longest, ahead, caches_prefixes) -> Driver:
    """``longest``: tokens that the model takes. ``ahead``: steps scheduled before the one in the model ends."""
    config = with_flags(config, async_scheduling=ahead > 0)
    config = config if drafting is None else with_drafts(config, *drafting)
    config = config if caches_prefixes else without_prefix_caching(config)
    config.model_config = copy(config.model_config)
    config.model_config.max_model_len = longest
    driver = Driver(make_scheduler(config, 60, window=2 * BLOCK_TOKENS, kinds=kinds))
    driver.declare(*(ZoneConfig(name=name, tenant=name, generation=1) for name in ("acme", "burst")))
    return driver


def check_blocks(scheduler) -> None:
    """Checks everything that running requests may ask for next against vLLM's own count."""
    manager, nothing = scheduler.kv_cache_manager, scheduler.kv_cache_manager.empty_kv_cache_blocks.blocks

    def by_vllm(request, tokens):
        computed = request.num_computed_tokens
        most = min(computed + tokens, scheduler.max_model_len - manager.sampled)
        if most <= computed:
            return 0
        return manager.blocks_to_allocate(request, nothing, computed, most, manager.lookahead)

    for request in scheduler.running:
        for tokens in (0, 1, 2, BLOCK_TOKENS - 1, BLOCK_TOKENS, BLOCK_TOKENS + 1, 5 * BLOCK_TOKENS):
            assert manager.blocks_to_continue(request, tokens) == by_vllm(request, tokens)
    lacking = manager.may_lack_blocks(scheduler.running)
    assert lacking == [request for request in scheduler.running if request in lacking]
    for request in scheduler.running:
        if request not in lacking:
            assert by_vllm(request, 1 + len(request.spec_token_ids)) == 0


@settings(max_examples=50)
@given(
    requests=REQUESTS,
    kinds=st.sampled_from(KINDS),
    drafting=st.sampled_from(DRAFTING),
    longest=st.integers(4 * BLOCK_TOKENS, 6 * BLOCK_TOKENS + 1),
    ahead=st.integers(0, 1),
    caches_prefixes=st.booleans(),
    chance=st.randoms(use_true_random=False),
)
def test_running_requests_lack_the_blocks_that_vllm_counts(
    new_engine, requests, kinds, drafting, longest, ahead, caches_prefixes, chance
):
    driver = new_engine(kinds, drafting, longest, ahead, caches_prefixes or bool(kinds))
    driver.drafts = lambda most: chance.randint(0, most)
    scheduler, in_the_model = driver.scheduler, []
    for number, (length, max_tokens, prefix) in enumerate(requests):
        tokens = [prefix + 1] * (length - 1) + [3 + number]
        driver.send(("acme", "burst")[number % 2], tokens[: longest - 1], max_tokens=max_tokens)
    for _ in range(1000):
        if not (scheduler.has_unfinished_requests() or in_the_model):
            return
        check_blocks(scheduler)
        if scheduler.has_unfinished_requests():
            in_the_model.append(driver.schedule())
            check_blocks(scheduler)
        if len(in_the_model) > ahead or not scheduler.has_unfinished_requests():
            output, result = in_the_model.pop(0)
            driver.update(output, result)
            if not ahead:
                driver.draft(output)
    pytest.fail("requests are left")
