"""Requests that find no seat (``--max-num-seqs``)."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.config import ZoneConfig


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
