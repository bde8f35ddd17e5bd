"""Running requests that ask for one block more than there is: which go on, which are preempted, and at what cost."""

import random

import pytest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.zone_config.config import ZoneConfig
from tests.engine.histories.snapshot import take_snapshot


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), sequences=256, max_batched_tokens=4096)


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def keep_running(driver, requests, count, *arguments, **named):
    """Sends as many requests as are missing. Returns the unfinished ones."""
    unfinished = [request for request in requests if not request.is_finished()]
    while len(unfinished) < count:
        requests.append(driver.send(*arguments, **named))
        unfinished.append(requests[-1])
    return unfinished


def test_a_tenant_at_its_own_limit_takes_no_step_from_others(config):
    """Its requests grow in turn, and fillers take each block that one of them frees."""
    driver = Driver(make_scheduler(config, 500))
    driver.declare(zone("burst", limit=40), zone("acme", reserved=250))
    for index in range(16):
        driver.send("burst", prompt(0, extra=1 + index), max_tokens=400)
    for _ in range(2):
        driver.step()
    acme, fillers = [], []
    for _ in range(150):
        unfinished = keep_running(driver, acme, 8, "acme", prompt(3), max_tokens=60 + len(acme) * 13 % 50)
        keep_running(driver, fillers, 40, "burst", prompt(0, extra=2), max_tokens=13)
        ran = {request.request_id for request in unfinished if request.status == RequestStatus.RUNNING}
        assert ran <= set(driver.step())
        driver.check()
    assert driver.zone("burst").counters.preemptions > 0
    assert driver.zone("acme").counters.preemptions == 0


@pytest.mark.parametrize("seed", range(3))
def test_no_request_yields_while_each_can_have_its_blocks(config, seed):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme"))
    choose = random.Random(seed)
    requests = [
        driver.send("acme", prompt(0, extra=choose.randint(1, BLOCK_TOKENS)), max_tokens=choose.randint(20, 120))
        for _ in range(120)
    ]
    counters = driver.zone("acme").counters
    while driver.scheduler.has_unfinished_requests():
        asked, free = sum(take_snapshot(driver).growth.values()), driver.scheduler.block_pool.get_num_free_blocks()
        before = counters.preemptions
        driver.step()
        assert asked > free or counters.preemptions == before
    assert counters.preemptions > 0
    assert all(driver.finished[request.request_id] == "length" for request in requests)


@pytest.mark.parametrize("prompt_logprobs", [False, True])
@pytest.mark.shows("`--no-scheduler-reserve-full-isl`")
def test_a_request_admitted_for_its_first_chunk_gets_to_its_end(config, prompt_logprobs):
    """Another zone caches what the rest of the prompt needs. With the prompt's logprobs, the request does not read its
    own cache either, so each restart would be from the beginning."""
    flags = {"scheduler_reserve_full_isl": False, "max_num_batched_tokens": 256}
    driver = Driver(make_scheduler(with_flags(config, **flags), 60))
    driver.declare(zone("acme"), zone("burst"))
    for _ in range(10):
        driver.ask("burst", prompt(4))
    request = driver.send("acme", prompt(34), max_tokens=5, prompt_logprobs=prompt_logprobs)
    computed = 0
    for _ in range(50):
        output, result = driver.schedule()
        driver.update(output, result)
        computed += output.total_num_scheduled_tokens
        driver.check()
    assert driver.finished.get(request.request_id) == "length"
    assert computed <= 2 * request.num_tokens


def test_no_request_yields_to_one_whose_last_token_is_on_its_way(config):
    """The next token would begin a block; with two steps in flight, it is not yet known that no token follows."""
    flags = {"async_scheduling": True}
    driver = Driver(make_scheduler(with_flags(config, **flags), 40))
    driver.declare(zone("acme"))
    requests = [driver.send("acme", prompt(blocks, extra=extra), max_tokens=4) for blocks, extra in ((10, 13), (28, 1))]
    in_flight = [driver.schedule()]
    while driver.scheduler.has_unfinished_requests():
        in_flight.append(driver.schedule())
        driver.update(*in_flight.pop(0))
    assert driver.zone("acme").counters.preemptions == 0
    assert all(driver.finished[request.request_id] == "length" for request in requests)


def test_a_prefill_in_short_chunks_needs_no_more_than_its_next_chunk(config):
    """With --long-prefill-token-threshold. It was held back, and the next step has what it asked for."""
    driver = Driver(make_scheduler(with_flags(config, long_prefill_token_threshold=BLOCK_TOKENS), 20))
    driver.declare(zone("acme"), zone("burst"))
    other = driver.send("burst", prompt(1), max_tokens=15)
    prefill = driver.send("acme", prompt(9, extra=1), max_tokens=1)
    for _ in range(5):
        driver.step()
    assert 0 < prefill.num_computed_tokens < prefill.num_tokens
    fillers = driver.scheduler.block_pool.free_block_queue.popleft_n(
        driver.scheduler.block_pool.free_block_queue.num_free_blocks
    )
    driver.scheduler.tenancy.ledger.take(driver.zone("burst"), [block.block_id for block in fillers])
    assert driver.step() == [other.request_id]
    block = fillers.pop()
    driver.scheduler.tenancy.ledger.release(driver.zone("burst"), [], [block.block_id])
    driver.scheduler.block_pool.free_block_queue.append(block)
    assert prefill.request_id in driver.step()
    assert (prefill.num_preemptions, other.num_preemptions) == (0, 0)
