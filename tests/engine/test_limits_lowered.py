"""A lowered limit lets earlier requests finish, and binds each later one."""

import pytest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig

CAPACITY = 100
LIMIT = 10


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), sequences=512)


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def test_what_comes_after_it_waits_while_the_zone_is_above_it(driver):
    driver.declare(zone("acme"))
    old = driver.send("acme", prompt(2), max_tokens=300)
    driver.step()
    driver.declare(zone("acme", limit=LIMIT))
    later = [driver.send("acme", prompt(8), max_tokens=15) for _ in range(20)]
    acme = driver.zone("acme")
    above = 0
    while driver.scheduler.has_unfinished_requests():
        driver.step()
        driver.check()
        above += acme.in_use > LIMIT
        assert acme.in_use <= LIMIT or all(request.status != RequestStatus.RUNNING for request in later)
    assert above > 0
    assert old.num_output_tokens == 300
    assert all(driver.finished[request.request_id] == "length" for request in later)


def test_what_was_there_goes_on_one_by_one_at_least(driver):
    """Each request may use what it was promised on arrival; together they may have to wait for each other."""
    driver.declare(zone("acme"))
    old = [driver.send("acme", prompt(4), max_tokens=100) for _ in range(3)]
    driver.step()
    driver.declare(zone("acme", limit=LIMIT))
    while driver.scheduler.has_unfinished_requests():
        # A request that is short of a block is helped before the next step.
        assert driver.step() or driver.step()
    assert all(driver.finished[request.request_id] == "length" for request in old)


class LookedAt(dict):
    """A dict that counts reads of its values."""

    count = 0

    def __iter__(self):
        self.count += len(self)
        return super().__iter__()

    def values(self):
        self.count += len(self)
        return super().values()

    def items(self):
        self.count += len(self)
        return super().items()


def test_a_request_that_ends_costs_the_same_however_many_others_there_are(driver):
    driver.declare(zone("acme", limit=80))
    requests = [driver.send("acme", prompt(1), max_tokens=1000) for _ in range(300)]
    driver.step()
    driver.declare(zone("acme", limit=LIMIT))
    driver.scheduler.requests = LookedAt(driver.scheduler.requests)
    driver.scheduler.finish_requests([request.request_id for request in requests], RequestStatus.FINISHED_ABORTED)
    assert driver.scheduler.requests == {}
    assert driver.scheduler.requests.count <= 2 * len(requests)
