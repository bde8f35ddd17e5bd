"""Features that a CPU engine lacks (asynchronous steps, pictures, sliding windows), in vLLM's real scheduler."""

import pytest
from vllm.config import SchedulerConfig
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle

CAPACITY = 100
WINDOW_BLOCKS = 4


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


@pytest.fixture
def driver(tmp_path):
    driver = Driver(make_scheduler(vllm_config(tmp_path), CAPACITY))
    driver.declare(zone("acme"), zone("burst"))
    return driver


def with_picture(driver, tenant, picture):
    """A request with a picture in its prompt's second block; its tokens are the same for all pictures."""
    request = driver.send(tenant, prompt(6, seed=1))
    place = PlaceholderRange(offset=BLOCK_TOKENS + 2, length=4)
    request.mm_features = [MultiModalFeatureSpec(data=None, modality="image", identifier=picture, mm_position=place)]
    request.block_hashes.clear()
    request.update_block_hashes()
    return request


@pytest.mark.shows("multimodal models")
def test_hashes_distinguish_pictures_inside_a_tenant_and_between_tenants(driver):
    same, again, other, foreign = (
        with_picture(driver, *what).block_hashes
        for what in (("acme", "cat"), ("acme", "cat"), ("acme", "dog"), ("burst", "cat"))
    )
    assert same == again
    assert same[:1] == other[:1]
    assert not set(same[1:]) & set(other[1:])
    assert not set(same) & set(foreign)


def priority_driver(folder) -> Driver:
    config = vllm_config(folder, sequences=1)
    config.scheduler_config.policy = "priority"
    assert isinstance(config.scheduler_config, SchedulerConfig)
    driver = Driver(make_scheduler(config, CAPACITY))
    driver.declare(zone("acme"), zone("burst"))
    return driver


@pytest.mark.shows("`--scheduling-policy priority`")
def test_priority_orders_the_requests_of_one_tenant_and_passes_no_other_tenants(tmp_path):
    driver = priority_driver(tmp_path)
    order = []
    for tenant, urgency in (("acme", 0), ("acme", 5), ("acme", -5), ("burst", 9)):
        request = driver.send(tenant, prompt(3), max_tokens=3)
        driver.scheduler.waiting.remove_request(request)
        request.priority = urgency
        driver.scheduler.waiting.add_request(request)
    while driver.scheduler.has_unfinished_requests():
        driver.step()
        order += [name for name in driver.finished if name not in order]
    assert order.index("acme-2") < order.index("acme-0") < order.index("acme-1")
    assert order.index("burst-3") < order.index("acme-0"), "its priority counts among its own tenant's only"


@pytest.mark.shows("`reset_prefix_cache`")
def test_one_zone_can_be_reset_alone(driver):
    """A limit of zero, then lifted, resets it; vLLM's own reset applies to all zones."""
    for tenant in ("acme", "burst"):
        driver.ask(tenant, prompt(6, seed=1))
    driver.declare(zone("acme", limit=0), zone("burst"))
    driver.declare(zone("acme"), zone("burst"))
    assert driver.cached_tokens(driver.ask("acme", prompt(6, seed=1))) == 0
    assert driver.cached_tokens(driver.ask("burst", prompt(6, seed=1))) == 6 * BLOCK_TOKENS
    assert driver.scheduler.reset_prefix_cache()
    assert driver.cached_tokens(driver.ask("burst", prompt(6, seed=1))) == 0


@pytest.fixture
def sliding(tmp_path):
    """A scheduler for a model whose layers all see back only a few blocks."""
    config = vllm_config(tmp_path, max_batched_tokens=128)
    return Driver(make_scheduler(config, CAPACITY, window=WINDOW_BLOCKS * BLOCK_TOKENS))


def step_checked(driver):
    driver.step()
    manager, ledger = driver.scheduler.kv_cache_manager, driver.scheduler.block_pool.ledger
    free = driver.scheduler.block_pool.free_block_queue.num_free_blocks
    ledger.check(free, CAPACITY)
    for name, request in driver.scheduler.requests.items():
        blocks = [block for block in manager.get_blocks(name).blocks[0] if not block.is_null]
        assert all(ledger.owner[block.block_id] is request.zone for block in blocks)


@pytest.mark.shows("sliding window in all layers")
def test_with_a_sliding_window_what_falls_out_of_it_stays_the_zones(sliding):
    sliding.declare(zone("acme", reserved=20, idle=Idle(after_seconds=0)), zone("burst", limit=40))
    requests = [sliding.send("acme", prompt(12), max_tokens=200) for _ in range(6)]
    requests += [sliding.send("burst", prompt(20), max_tokens=200) for _ in range(6)]
    most = 0
    while sliding.scheduler.has_unfinished_requests():
        step_checked(sliding)
        sliding.scheduler.let_time_pass()
        most = max(most, sum(zone.in_use for zone in sliding.scheduler.block_pool.ledger.zones.values()))
        assert sliding.zone("burst").held <= 40
    assert [request.num_output_tokens for request in requests] == [200] * 12
    assert most > 50, "both were crowded"
    sliding.ask("acme", prompt(12, seed=1))
    assert sliding.cached_tokens(sliding.ask("acme", prompt(12, seed=1))) == 12 * BLOCK_TOKENS
    assert sliding.cached_tokens(sliding.ask("burst", prompt(12, seed=1))) == 0
    sliding.declare()
    assert sliding.scheduler.block_pool.free_block_queue.num_free_blocks == CAPACITY
