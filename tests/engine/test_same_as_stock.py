"""With no zone declared, each step does to each block what vLLM's own scheduler would do."""

from collections import deque

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hack.harness.kv_caches import KINDS
from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config, with_drafts

CAPACITY = 24


DRAFTING = (None, ("ngram", 3), ("eagle", 3))


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    config = vllm_config(tmp_path_factory.mktemp("model"), sequences=6, max_batched_tokens=3 * BLOCK_TOKENS)
    return {method: config if method is None else with_drafts(config, *method) for method in DRAFTING}


requests = st.lists(
    st.tuples(
        st.integers(0, 6),  # full blocks of the prompt
        st.integers(1, BLOCK_TOKENS),  # further tokens of the prompt
        st.integers(0, 3),  # what it begins with
        st.integers(1, 3 * BLOCK_TOKENS),  # tokens of the answer
        st.integers(0, 3),  # steps before the next request
    ),
    min_size=1,
    max_size=10,
)


@given(
    history=requests,
    ahead=st.integers(0, 1),
    window=st.sampled_from([None, 2 * BLOCK_TOKENS]),
    kinds=st.sampled_from([()] * len(KINDS) + list(KINDS)),
    drafting=st.sampled_from(DRAFTING),
    right=st.integers(0, 3),
)
@settings(deadline=None)
def test_every_step_leaves_the_same_blocks_behind(configs, history, ahead, window, kinds, drafting, right):
    """``ahead``: steps scheduled before the one in the model ends, as with async scheduling."""
    assume("chunks" not in kinds or drafting != ("eagle", 3))  # vLLM itself does not
    config, window = configs[drafting], window if not kinds else 2 * BLOCK_TOKENS
    capacity = CAPACITY * max(1, len(kinds))
    ours, stock = (
        Driver(make_scheduler(config, capacity, zones=zones, window=window, kinds=kinds)) for zones in (True, False)
    )
    for driver in (ours, stock):
        driver.drafts = lambda most: min(most, right)
    in_the_model: dict[Driver, deque] = {ours: deque(), stock: deque()}

    def step() -> None:
        for driver, queue in in_the_model.items():
            queue.append(driver.schedule())
        assert _blocks(ours) == _blocks(stock)
        for driver, queue in in_the_model.items():
            if len(queue) > ahead:
                driver.update(*queue.popleft())
        assert _blocks(ours) == _blocks(stock)

    for blocks, extra, seed, answer, steps in history:
        for each in (ours, stock):
            each.send(None, prompt(blocks, seed=seed, extra=extra), max_tokens=answer)
        for _ in range(steps):
            step()
    while stock.scheduler.has_unfinished_requests():
        step()
    assert ours.finished == stock.finished
    assert not ours.scheduler.has_unfinished_requests()


def _blocks(driver: Driver) -> tuple:
    """The holders of each block, its entry in the prefix index, and the eviction order of the others."""
    manager = driver.scheduler.kv_cache_manager
    pool = manager.block_pool
    tables = {name: manager.get_block_ids(name) for name in driver.scheduler.requests}
    hashes = [(block.ref_cnt, block.block_hash) for block in pool.blocks]
    others = dict(pool.cached_block_hashes_by_block)
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    return tables, hashes, others, free
