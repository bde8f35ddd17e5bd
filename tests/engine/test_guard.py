"""Faults planted in vLLM's own books: no request is served from another zone's block, and the engine goes on."""

import pytest
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

from hack.harness.kv_caches import KINDS
from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.engine.errors import ForeignBlockError
from tenantzone_runtime.zones.audit.events import Violation


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(*(ZoneConfig(name=tenant, tenant=tenant, generation=1) for tenant in ("acme", "burst")))
    driver.ask("acme", prompt(6, seed=1))
    driver.scheduler.tenancy.ledger.trail.collect()
    return driver


@pytest.fixture
def foreign(driver):
    """A block that acme keeps cached."""
    block_id = next(iter(driver.zone("acme").cached))
    return driver.scheduler.block_pool.blocks[block_id]


def caught(driver):
    """Each caught zone, with the block and the block's owner."""
    return [
        (event.zone, event.block_id, event.owner)
        for event in driver.scheduler.tenancy.ledger.trail.collect()
        if isinstance(event, Violation)
    ]


def assert_only_it_was_failed(driver, request, foreign):
    assert driver.finished[request.request_id] == "error"
    assert caught(driver) == [("burst", foreign.block_id, "acme")]
    assert driver.zone("burst").counters.violations == 1
    assert (foreign.ref_cnt, driver.zone("burst").in_use) == (0, 0)
    assert driver.cached_tokens(driver.ask("acme", prompt(6, seed=1))) == 6 * BLOCK_TOKENS
    driver.ask("burst", prompt(6, seed=2))
    assert driver.cached_tokens(driver.ask("burst", prompt(6, seed=2))) == 6 * BLOCK_TOKENS
    assert caught(driver) == []


def test_a_foreign_block_in_the_prefix_index(driver, foreign):
    request = driver.send("burst", prompt(6, seed=1))
    pool = driver.scheduler.block_pool
    with pool.for_zone(driver.zone("burst")):
        pool.cached_block_hash_to_block.insert(make_block_hash_with_group_id(request.block_hashes[0], 0), foreign)
    driver.run()
    assert request.num_computed_tokens == 0
    with pool.for_zone(driver.zone("burst")):
        pool.cached_block_hash_to_block.pop(make_block_hash_with_group_id(request.block_hashes[0], 0), foreign.block_id)
    assert_only_it_was_failed(driver, request, foreign)


def test_a_foreign_block_among_the_free_ones(driver, foreign):
    driver.scheduler.block_pool.free_block_queue.prepend_n([foreign])
    request = driver.send("burst", prompt(3))
    driver.step()
    assert request.num_computed_tokens == 0
    foreign.ref_cnt = 0
    driver.run()
    assert_only_it_was_failed(driver, request, foreign)


def test_a_foreign_block_for_a_request_that_grows(driver, foreign):
    request = driver.send("burst", prompt(3, extra=BLOCK_TOKENS - 2), max_tokens=20)
    driver.step()
    driver.scheduler.block_pool.free_block_queue.prepend_n([foreign])
    while request.request_id not in driver.finished:
        driver.step()
    assert request.num_output_tokens < 20
    foreign.ref_cnt = 0
    assert_only_it_was_failed(driver, request, foreign)


def test_a_foreign_block_next_to_what_a_load_took_for_later_loses_nothing(driver, foreign):
    pool, zone = driver.scheduler.block_pool, driver.zone("burst")
    with pool.for_zone(zone) as view:
        taken = view.spare = pool.get_new_blocks(1)
        pool.free_block_queue.prepend_n([foreign])
        with pytest.raises(ForeignBlockError):
            pool.get_new_blocks(2)
    assert view.spare is taken


def test_a_foreign_block_in_a_block_table(driver, foreign):
    bystander = driver.send("acme", prompt(3), max_tokens=20)
    request = driver.send("burst", prompt(3), max_tokens=20)
    driver.step()
    driver.scheduler.kv_cache_manager.get_blocks(request.request_id).blocks[0].append(foreign)
    driver.step()
    driver.step()
    driver.step()
    assert driver.finished[request.request_id] == "error"
    driver.run()
    assert bystander.num_output_tokens == 20
    assert_only_it_was_failed(driver, request, foreign)


def test_one_that_is_caught_with_its_last_token_in_flight_ends_with_an_error_all_the_same(config):
    driver = Driver(make_scheduler(with_flags(config, async_scheduling=True), 100))
    driver.declare(*(ZoneConfig(name=tenant, tenant=tenant, generation=1) for tenant in ("acme", "burst")))
    driver.ask("acme", prompt(6, seed=1))
    foreign = driver.scheduler.block_pool.blocks[next(iter(driver.zone("acme").cached))]
    request = driver.send("burst", prompt(6, seed=2), max_tokens=2)
    in_flight = [driver.schedule(), driver.schedule()]
    driver.update(*in_flight.pop(0))
    driver.scheduler.kv_cache_manager.get_blocks(request.request_id).blocks[0][2] = foreign
    in_flight.append(driver.schedule())
    while in_flight:
        driver.update(*in_flight.pop(0))
    driver.run()
    assert driver.finished[request.request_id] == "error"
    assert len(request.output_token_ids) == 1, "no client gets what was computed over the foreign block"
    assert driver.scheduler.get_num_unfinished_requests() == 0


@pytest.mark.parametrize(
    ("kinds", "group"), [(kinds, group) for kinds in KINDS if len(kinds) > 1 for group in range(len(kinds))], ids=str
)
def test_a_foreign_block_in_the_table_of_any_group(config, kinds, group):
    hybrid = Driver(make_scheduler(config, 100, window=4 * BLOCK_TOKENS, kinds=kinds))
    hybrid.declare(*(ZoneConfig(name=tenant, tenant=tenant, generation=1) for tenant in ("acme", "burst")))
    owner = hybrid.send("acme", prompt(6, seed=1), max_tokens=100)
    request = hybrid.send("burst", prompt(3), max_tokens=20)
    hybrid.step()
    manager = hybrid.scheduler.kv_cache_manager
    foreign = next(block for block in manager.get_blocks(owner.request_id).blocks[group] if not block.is_null)
    hybrid.scheduler.tenancy.ledger.trail.collect()
    manager.get_blocks(request.request_id).blocks[group].append(foreign)
    while not request.is_finished():
        hybrid.step()
    assert hybrid.finished[request.request_id] == "error"
    assert caught(hybrid) == [("burst", foreign.block_id, "acme")]
    assert hybrid.zone("burst").in_use == 0
    hybrid.run()
    assert owner.num_output_tokens == 100


@pytest.mark.parametrize(
    ("kinds", "group"),
    [(kinds, group) for kinds in KINDS if len(kinds) > 1 and "mamba none" not in kinds for group in range(len(kinds))],
    ids=str,
)
def test_a_foreign_block_in_the_prefix_index_of_any_group(config, kinds, group):
    """What the previous groups had found is given back."""
    hybrid = Driver(make_scheduler(config, 100, window=4 * BLOCK_TOKENS, kinds=kinds))
    hybrid.declare(*(ZoneConfig(name=tenant, tenant=tenant, generation=1) for tenant in ("acme", "burst")))
    for tenant in ("acme", "burst"):
        hybrid.ask(tenant, prompt(6, seed=1))
    pool, acme, burst = hybrid.scheduler.block_pool, hybrid.zone("acme"), hybrid.zone("burst")
    foreign = pool.blocks[next(iter(acme.cached))]
    hybrid.scheduler.tenancy.ledger.trail.collect()
    request = hybrid.send("burst", prompt(6, seed=1))
    found = hybrid.scheduler.kv_cache_manager.look_up(request)[0].blocks[group][-1]
    with pool.for_zone(burst):
        pool.cached_block_hash_to_block.pop(found.block_hash, found.block_id)
        pool.cached_block_hash_to_block.insert(found.block_hash, foreign)
    hybrid.run()
    assert request.num_computed_tokens == 0
    assert hybrid.finished[request.request_id] == "error"
    assert caught(hybrid) == [("burst", foreign.block_id, "acme")]
    assert (foreign.ref_cnt, burst.in_use) == (0, 0)
