"""A zone's own prefix index, inside vLLM's real scheduler: it is removed with its last prefix."""

import weakref

import pytest
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig


@pytest.fixture
def driver(tmp_path):
    return Driver(make_scheduler(vllm_config(tmp_path, max_batched_tokens=4096), 100))


def zone(tenant):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1)


def prefix_index(driver, tenant):
    """A weak reference that shows whether the index is still kept."""
    pool = driver.scheduler.block_pool
    with pool.for_zone(driver.zone(tenant)):
        return weakref.ref(pool.cached_block_hash_to_block)


def test_a_zone_that_lost_its_cache_keeps_no_empty_prefix_index(driver):
    """Its table would keep its largest size."""
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(50, seed=1))
    index = prefix_index(driver, "acme")
    assert index() is not None
    assert driver.scheduler.reset_prefix_cache()
    assert index() is None
    driver.ask("acme", prompt(50, seed=1))
    assert driver.cached_tokens(driver.ask("acme", prompt(50, seed=1))) == 50 * BLOCK_TOKENS


def test_a_zone_that_lost_its_cache_still_finds_prefixes_that_are_in_use(driver):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(20, seed=1))
    driver.send("acme", prompt(20, seed=2), max_tokens=30)
    driver.step()
    driver.scheduler.block_pool.evict(driver.zone("acme"), "idle")
    late = driver.send("acme", prompt(20, seed=2))
    driver.run()
    assert driver.cached_tokens(late) == 20 * BLOCK_TOKENS


def test_a_look_up_makes_no_prefix_index(driver):
    driver.declare(zone("acme"), zone("burst"))
    driver.send("burst", prompt(90), max_tokens=100)
    driver.step()
    driver.send("acme", prompt(30))
    driver.step()
    assert [zone.spec.tenant for zone in driver.scheduler.block_pool._index] == ["burst"]


def test_zones_that_leave_while_a_request_waits_leave_no_prefix_index_behind(driver):
    driver.declare(zone("burst"))
    driver.send("burst", prompt(90), max_tokens=100)
    driver.step()
    for number in range(3):
        driver.declare(zone("burst"), zone(f"tenant-{number}"))
        request = driver.send(f"tenant-{number}", prompt(30))
        driver.step()
        driver.declare(zone("burst"))
        driver.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
    assert [zone.spec.tenant for zone in driver.scheduler.block_pool._index] == ["burst"]


def test_what_zones_write_before_they_have_an_index_is_found_by_them_alone(driver):
    """The hashes are the same: if the zones shared what they write, only salts would keep them apart."""
    driver.declare(zone("acme"), zone("burst"))
    pool = driver.scheduler.block_pool
    one, other = pool.blocks[1], pool.blocks[2]
    key = make_block_hash_with_group_id(b"hash", 0)
    for tenant, block in (("acme", one), ("burst", other)):
        with pool.for_zone(driver.zone(tenant)):
            assert pool.cached_block_hash_to_block.get_one_block(key) is None
            pool.cached_block_hash_to_block.insert(key, block)
    for tenant, block in (("acme", one), ("burst", other)):
        with pool.for_zone(driver.zone(tenant)):
            assert pool.cached_block_hash_to_block.get_one_block(key) is block
    with pool.for_zone(None):
        assert pool.cached_block_hash_to_block.get_one_block(key) is None


def test_the_zone_of_requests_from_before_zones_leaves_no_prefix_index(driver):
    request = driver.send(None, prompt(5), max_tokens=2)
    driver.declare(zone("acme"))
    driver.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
    driver.step()
    assert list(driver.scheduler.block_pool.zones) == ["acme"]
    assert driver.scheduler.block_pool._index == {}
