"""Requests that find no seat (``--max-num-seqs``)."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), sequences=2)


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def test_no_cache_is_evicted_for_a_request_without_a_seat(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme"), zone("burst"), zone("calm"))
    driver.ask("burst", prompt(50))
    seated = [driver.send("calm", prompt(2), max_tokens=60) for _ in range(2)]
    driver.step()
    waiting = driver.send("acme", prompt(60))
    for _ in range(5):
        driver.step()
    assert driver.zone("burst").held == 50
    assert waiting.num_computed_tokens == 0
    driver.run()
    assert all(request.num_output_tokens == 60 for request in seated)
    assert driver.finished[waiting.request_id] == "length"


def test_a_zone_runs_no_more_at_once_than_its_limit_and_is_not_in_others_way(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", seats={"limit": 1}), zone("burst"))
    first, second = [driver.send("acme", prompt(2, seed=seed), max_tokens=3) for seed in range(2)]
    driver.step()
    assert (second.num_computed_tokens, driver.zone("acme").wait_reason) == (0, "seat_limit")
    other = driver.send("burst", prompt(2), max_tokens=3)
    driver.step()
    assert [first.num_computed_tokens > 0, second.num_computed_tokens, other.num_computed_tokens > 0] == [True, 0, True]
    driver.run()
    assert [driver.finished[each.request_id] for each in (first, second, other)] == ["length"] * 3


def test_seats_that_are_reserved_by_name_are_there_in_the_next_step(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", seats={"reserved": 1}), zone("burst"))
    running = [driver.send("burst", prompt(2, seed=seed), max_tokens=60) for seed in range(2)]
    driver.step()
    work = driver.send("acme", prompt(2, seed=9), max_tokens=2)
    driver.step()
    assert work.num_computed_tokens > 0
    assert sorted(each.num_preemptions for each in running) == [0, 1]
    driver.run()
    assert all(driver.finished[each.request_id] == "length" for each in (work, *running))
